"""The needs of a pod at one site: volumes, images, credentials, resources, annotations.

Knows a pod and a BuildConfig, and writes no script.

Touches: nothing.
"""
