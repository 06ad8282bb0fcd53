"""The pool's directory: accepted jobs, journal, spool, logs.

Called in any thread.

Touches: clock, files, log, random, threads.
"""
