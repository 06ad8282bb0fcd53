"""The host backend with containers: removes them besides killing processes.

Runs podman. No NATS, no loop.
"""
