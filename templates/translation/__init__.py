"""The translation of a pod and a BuildConfig into a job, the only one there is.

Pure: no files, no clock, no network, no threads, no loop.
"""
