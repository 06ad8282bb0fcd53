"""The plugin's state: job states, what pools published, rejections, pending deletes.

Any thread may call; shared data is held under a lock. Pending deletes and the homes of pods are
files; Redis has configurations. Nothing here waits for NATS.

Touches: clock, files, log, redis, threads.
"""
