"""The plugin's use of the Kubernetes API: orphans, and terminal statuses.

Runs in threads of its own, which poll.

Touches: clock, log, network.
"""
