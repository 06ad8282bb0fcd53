"""The plugin's errors and settings, and a thread that calls a function periodically.

Touches: environment, files, log, threads.
"""
