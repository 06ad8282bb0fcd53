"""Errors, processes, file locks, syncs, requests from threads, and periodic tasks.

The only room that starts processes. Knows nothing of jobs.
"""
