"""The commands of scripts/slurm-site that concern one site."""

from __future__ import annotations

import argparse
import sys

from scripts.lib import site_main
from scripts.lib.slurm.site import Site
from scripts.lib.slurm.up import Plan, prepare_database, up


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, choices=range(65), default=3, metavar="N")
    parser.add_argument("--no-accounting", dest="accounting", action="store_false")
    parser.add_argument("--podman", action="store_true")


def _plan(asked: argparse.Namespace) -> Plan:
    changes = site_main.changes(asked.set)
    return Plan(asked.root, asked.python, asked.nodes, asked.accounting, asked.podman, changes)


def _up(site: Site, asked: argparse.Namespace) -> str:
    up(site, _plan(asked))
    return f"{asked.nodes} nodes"


def _prepare(site: Site, asked: argparse.Namespace) -> None:
    prepare_database(site, _plan(asked))


KIND = site_main.Kind("slurm-site", Site, _options, _up, "sinfo", _prepare)

if __name__ == "__main__":
    sys.exit(site_main.main(KIND))
