"""The needs of a pod at one site: volumes, images, credentials, resources, annotations.

Pure: no files, no clock, no network, no threads, no loop. Knows a pod and a BuildConfig, and
writes no script.
"""
