"""The machine that the submitter lives on: a queue, locks and processes.

Touches: clock, files, processes, programs, random.
"""
