"""The manifests for a pool that is a Kubernetes cluster: the renderer beside ``script``.

Pure: no files, no clock, no network, no threads, no loop.
"""
