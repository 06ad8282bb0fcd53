"""The pool's directory: accepted jobs, journal, spool, logs.

Touches files and the clock, in whatever thread calls. No network, no processes, no loop.
"""
