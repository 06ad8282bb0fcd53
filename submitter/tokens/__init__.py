"""Tokens for batch systems that need them: from an issuer, shared among submitters.

Knows nothing of jobs.

Touches: clock, files, log, random, requests, threads.
"""
