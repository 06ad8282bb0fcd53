"""Tokens for batch systems that need them: from an issuer, shared among submitters.

Touches the network, files, the clock and threads. Knows nothing of jobs.
"""
