"""The machine that the submitter lives on: a queue, locks and processes.

Starts and signals processes. No NATS, no loop.
"""
