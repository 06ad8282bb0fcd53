"""What the mains of all programs share: NATS settings, logging, signals, exit codes, health port.

May touch the log, signals, sockets and threads. Knows nothing of pods, jobs or messages.
"""
