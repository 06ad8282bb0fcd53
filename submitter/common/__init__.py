"""Errors, processes, file locks and synced files: what the rooms above use to touch this machine.

The only room that starts processes. Knows nothing of jobs.
"""
