"""What the plugin knows: states of jobs, what pools published, refusals, pending deletions.

Any thread may call; whatever is shared is held under a lock. Files (deletions) and Redis
(configurations) are the only things touched outside of memory. Nothing here waits for NATS.
"""
