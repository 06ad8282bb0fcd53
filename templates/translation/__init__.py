"""The translation of a pod and a BuildConfig into a job, the only one there is.

Touches: nothing.
"""
