"""The manifests for a pool that is a Kubernetes cluster: the renderer beside ``script``.

Touches: nothing.
"""
