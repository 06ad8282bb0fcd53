"""The connection to NATS: requests and replies, large messages in chunks, subjects, permissions.

Runs in the asyncio loop of its caller and starts no thread. Knows nothing of pods or jobs.

Touches: clock, files, log, loop, nats, network, random.
"""
