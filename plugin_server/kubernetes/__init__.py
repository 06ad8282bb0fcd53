"""What the plugin reads from and writes to Kubernetes: orphans, and terminal statuses.

Runs in threads of its own, which poll.

Touches: clock, log, network.
"""
