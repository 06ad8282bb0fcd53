"""The service on a site's login node: it takes jobs from NATS and runs them in the batch system.

It is thin on purpose: it writes a job into a directory, submits it, and reports its status.
Kubernetes' pods are unknown here; their translation belongs to ``templates``. Runs on Python 3.9.
"""
