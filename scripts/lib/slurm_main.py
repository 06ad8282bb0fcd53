"""The commands of scripts/slurm-site that concern one site."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from scripts.lib import slurm_files as files
from scripts.lib.slurm_machines import Trouble
from scripts.lib.slurm_site import Site
from scripts.lib.slurm_up import Plan, prepare_database, up

ON_PARTS = ("kill", "stop", "start", "freeze", "thaw")
ON_MACHINES = ("unplug", "plug")


def say(text: str) -> None:
    """Tell whoever has called."""
    sys.stderr.write(f"slurm-site: {text}\n")


def main() -> int:
    """The command; returns its exit code."""
    arguments = _parser().parse_args()
    site = Site(arguments.directory)
    try:
        if arguments.verb in ("up", "prepare"):
            return _start(site, arguments)
        if arguments.verb in ("login", "admin", "python"):
            return _run(site, arguments)
        return _change(site, arguments)
    except (Trouble, OSError, subprocess.CalledProcessError) as error:
        say(str(error))
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/slurm-site", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("up", "prepare"):
        start = verbs.add_parser(verb)
        start.add_argument("directory", type=Path)
        start.add_argument("--root", type=Path, required=True)
        start.add_argument("--python", required=True)
        start.add_argument("--nodes", type=int, choices=range(65), default=3, metavar="N")
        start.add_argument("--no-accounting", dest="accounting", action="store_false")
        start.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    for verb in ("login", "admin", "python"):
        run = verbs.add_parser(verb)
        run.add_argument("directory", type=Path)
        run.add_argument("command", nargs=argparse.REMAINDER)
    for verb in (*ON_PARTS, *ON_MACHINES):
        change = verbs.add_parser(verb)
        change.add_argument("directory", type=Path)
        change.add_argument("parts", nargs="+", metavar="PART")
    lead = verbs.add_parser("lead-to")
    lead.add_argument("directory", type=Path)
    lead.add_argument("port", type=int)
    lead.add_argument("host", nargs="?", default="127.0.0.1")
    verbs.add_parser("down").add_argument("directory", type=Path)
    return parser


def _start(site: Site, arguments: argparse.Namespace) -> int:
    changes = dict(word.partition("=")[::2] for word in arguments.set)
    root, accounting = arguments.root, arguments.accounting
    plan = Plan(root, arguments.python, arguments.nodes, accounting, changes)
    if arguments.verb == "prepare":
        prepare_database(site, plan)
        return 0
    start = time.monotonic()
    up(site, plan)
    say(f"a site of {plan.nodes} nodes is up after {time.monotonic() - start:.1f} s")
    say(f"  its facts      {site.file}")
    say(f"  its users      scripts/slurm-site login {arguments.directory} sinfo")
    say(f"  the way out    {files.CENTRE}:{files.CENTRE_PORT} (lead-to says where it leads)")
    say(f"  and away       scripts/slurm-site down {arguments.directory}")
    return 0


def _run(site: Site, arguments: argparse.Namespace) -> int:
    """Become the command."""
    words = arguments.command or ["bash"]
    if arguments.verb == "python":
        command = site.python(arguments.command)
    elif arguments.verb == "admin":
        command = site.command("ctl", words)
    else:
        command = site.command("login", words, files.USER)
    os.execv(command[0], command)  # noqa: S606 - no shell is what we want


def _change(site: Site, arguments: argparse.Namespace) -> int:
    if arguments.verb == "down":
        site.down()
    elif arguments.verb == "lead-to":
        site.lead_to(arguments.port, arguments.host)
    else:
        for part in arguments.parts:
            getattr(site, arguments.verb)(part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
