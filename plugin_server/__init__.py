"""What interLink calls its plugin: an HTTP server that hands pods to submitters, over NATS.

HTTP stops at ``api.py``; NATS stops at ``gateway.py``; asyncio stops at ``bridge.py``.
"""
