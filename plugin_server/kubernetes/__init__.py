"""What the plugin reads from and writes to Kubernetes, in threads of its own that poll.

May touch the network, the clock and threads; never the loop.
"""
