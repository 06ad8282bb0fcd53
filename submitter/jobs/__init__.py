"""A job's life at the site: submitted, polled, ended, deleted, cleaned up.

Backends are called in threads, everything else runs in the loop. Knows a backend by its base class
alone.

Touches: clock, files, log, loop.
"""
