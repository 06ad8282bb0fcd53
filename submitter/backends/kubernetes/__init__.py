"""A Kubernetes cluster as a pool: applies manifests, reads pods, logs and quotas.

Touches: clock, files, log, network, random, threads.
"""
