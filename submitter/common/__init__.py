"""Errors, commands, file locks, synced files, requests from threads, and periodic tasks.

The only room that starts commands; the others call it. Knows nothing of jobs.

Touches: files, log, loop, nats, programs, threads.
"""
