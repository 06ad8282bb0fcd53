"""Code of the thread that owns the asyncio loop and the connection to NATS.

Coroutines and callbacks of the loop, and the bridge by which other threads call them. Nothing here
blocks.

Touches: clock, log, loop, nats, random, threads.
"""
