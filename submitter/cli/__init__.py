"""``interlink-submitter``: the service, and its subcommands check, sample and import-slurm-config.

Touches: files, log, loop, nats, network, programs, threads, yaml.
"""
