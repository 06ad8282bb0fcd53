"""The operator as a program: rounds for ever or once, health, metrics, the ``plan`` subcommand.

Touches the clock, the loop, threads and sockets.
"""
