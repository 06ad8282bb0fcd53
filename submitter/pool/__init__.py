"""A pool on NATS: takes jobs, answers queries and log requests, publishes states and resources.

Runs in the loop. Knows nothing of any batch system.

Touches: clock, files, log, loop, nats, random.
"""
