"""A Kubernetes cluster as a pool: applies manifests, reads pods, logs and quotas.

Touches the network through ``client``, which alone imports the Kubernetes client. No NATS, no
loop.
"""
