"""The two command lines that come with the shared library: render-pod and nats-site.

No program imports it.

Touches: clock, files, loop, nats, network, nkeys, processes, programs, random.
"""
