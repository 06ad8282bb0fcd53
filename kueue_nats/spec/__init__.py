"""The operator's errors and settings, and the MasterQueue as a value.

Pure but for ``settings``, which reads its file and the environment. No clock, no network, no
threads, no loop.
"""
