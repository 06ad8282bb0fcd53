"""What the mains of all programs share: NATS settings, logging, signals, exit codes.

Knows nothing of pods, jobs or messages.

Touches: files, log, loop, processes.
"""
