"""What the plugin knows: states of jobs, what pools published, rejections, pending deletions.

Any thread may call; whatever is shared is held under a lock. Pending deletions are files; Redis has
configurations. Nothing here waits for NATS.

Touches: clock, files, log, redis, threads.
"""
