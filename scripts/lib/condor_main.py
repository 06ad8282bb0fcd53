"""The commands of scripts/condor-site that concern one site."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from scripts.lib import slurm_files as files
from scripts.lib.condor_site import CondorSite, Plan, up
from scripts.lib.slurm_machines import Trouble

ON_PARTS = ("kill", "stop", "start", "freeze", "thaw", "unplug", "plug")


def say(text: str) -> None:
    """Tell whoever has called."""
    sys.stderr.write(f"condor-site: {text}\n")


def main() -> int:
    """The command; returns its exit code."""
    arguments = _parser().parse_args()
    site = CondorSite(arguments.directory)
    try:
        if arguments.verb == "up":
            _start(site, arguments)
        elif arguments.verb in ("login", "admin", "python"):
            _become(site, arguments)
        elif arguments.verb == "down":
            site.down()
        elif arguments.verb == "lead-to":
            site.lead_to(arguments.port)
        else:
            for part in arguments.parts:
                getattr(site, arguments.verb)(part)
    except (Trouble, OSError, subprocess.CalledProcessError) as error:
        say(str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/condor-site", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("up")
    start.add_argument("directory", type=Path)
    start.add_argument("--root", type=Path, required=True)
    start.add_argument("--python", required=True)
    start.add_argument("--nodes", type=int, choices=range(1, 65), default=2, metavar="N")
    start.add_argument("--not-shared", dest="shared", action="store_false")
    start.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    for verb in ("login", "admin", "python"):
        run = verbs.add_parser(verb)
        run.add_argument("directory", type=Path)
        run.add_argument("command", nargs=argparse.REMAINDER)
    for verb in ON_PARTS:
        change = verbs.add_parser(verb)
        change.add_argument("directory", type=Path)
        change.add_argument("parts", nargs="+", metavar="PART")
    lead = verbs.add_parser("lead-to")
    lead.add_argument("directory", type=Path)
    lead.add_argument("port", type=int)
    verbs.add_parser("down").add_argument("directory", type=Path)
    return parser


def _start(site: CondorSite, arguments: argparse.Namespace) -> None:
    changes = dict(word.partition("=")[::2] for word in arguments.set)
    plan = Plan(arguments.root, arguments.python, arguments.nodes, arguments.shared, changes)
    start = time.monotonic()
    up(site, plan)
    kind = "with a shared file system" if plan.shared else "without a shared file system"
    say(f"a site of {plan.nodes} nodes {kind} is up after {time.monotonic() - start:.1f} s")
    say(f"  its facts      {site.file}")
    say(f"  its users      scripts/condor-site login {arguments.directory} condor_q")
    say(f"  the way out    {files.CENTRE}:{files.CENTRE_PORT} (lead-to says where it leads)")
    say(f"  and away       scripts/condor-site down {arguments.directory}")


def _become(site: CondorSite, arguments: argparse.Namespace) -> None:
    words = arguments.command or ["bash"]
    if arguments.verb == "python":
        command = site.python(arguments.command)
    elif arguments.verb == "admin":
        command = site.command("ctl", words)
    else:
        command = site.command("login", words, files.USER)
    os.execv(command[0], command)  # noqa: S606 - no shell is what we want


if __name__ == "__main__":
    sys.exit(main())
