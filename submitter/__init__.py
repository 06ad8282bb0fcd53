"""The service on a site's login node: it takes jobs from NATS and runs them in the batch system.

It writes what it is sent into a directory, starts it, and reports what becomes of it. Kubernetes'
pods are unknown here; their translation belongs to ``templates``. Runs on Python 3.9.

Touches: files, log, loop.
"""
