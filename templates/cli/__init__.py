"""The two command lines that come with the shared library: render-pod and nats-site.

May touch files, the environment and processes. No program imports it.
"""
