"""``interlink-submitter``: the service, and its subcommands check, sample and import-slurm-config.

May touch everything that it checks: files, programs, the network.
"""
