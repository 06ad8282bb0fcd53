"""From a pod and a BuildConfig to a job: the one translation that there is.

Pure: no files, no clock, no network, no threads, no loop.
"""
