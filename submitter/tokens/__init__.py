"""Tokens for batch systems that want them: from an issuer, shared among submitters.

Touches the network, files, the clock and threads. Knows nothing of jobs.
"""
