"""Errors, commands, file locks, guarded and synced files, requests from threads, periodic tasks.

The only room that starts commands; the others call it. Knows nothing of jobs.

Touches: files, log, loop, nats, programs, threads.
"""
