"""``interlink-submitter``: the service, and its subcommands check, sample and import-slurm-config.

May touch whatever it checks: files, programs, the network.
"""
