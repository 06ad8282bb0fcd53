"""Common parts of the programs' mains: NATS settings, logging, signals, exit codes, health port.

Knows nothing of pods, jobs or messages.

Touches: clock, files, log, loop, network, processes, threads.
"""
