"""The connection to NATS: requests and replies, large messages in chunks, subjects, permissions.

Touches the network and the clock, in the asyncio loop of whoever calls; reads credentials from
files. Starts no thread, and knows nothing of pods or jobs.
"""
