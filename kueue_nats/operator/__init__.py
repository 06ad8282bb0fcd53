"""The operator as a program: rounds for ever or once, health, metrics, the ``plan`` subcommand.

Touches: clock, files, log, loop, network, processes, prometheus_client, random, yaml.
"""
