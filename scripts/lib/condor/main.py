"""The commands of scripts/condor-site that concern one site."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.lib import site_main
from scripts.lib.condor.site import CondorSite, Plan, up
from scripts.lib.slurm.site import Site


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, choices=range(1, 65), default=2, metavar="N")
    parser.add_argument("--not-shared", dest="shared", action="store_false")
    parser.add_argument("--element", type=Path, metavar="FOLDER")


def _up(site: Site, asked: argparse.Namespace) -> str:
    changes = site_main.changes(asked.set)
    shared = asked.shared and asked.element is None
    plan = Plan(asked.root, asked.python, asked.nodes, shared, asked.element, changes)
    up(CondorSite(site.directory), plan)
    kind = "with" if shared else "without"
    return f"{asked.nodes} nodes {kind} a shared file system"


KIND = site_main.Kind("condor-site", CondorSite, _options, _up, "condor_q")

if __name__ == "__main__":
    sys.exit(site_main.main(KIND))
