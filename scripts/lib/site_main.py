"""The subcommands that scripts/slurm-site and scripts/condor-site share."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.lib.slurm import files
from scripts.lib.slurm.machines import Trouble
from scripts.lib.slurm.site import Site

ON_PARTS = ("kill", "stop", "start", "freeze", "thaw", "unplug", "plug")


class Kind(NamedTuple):
    """One of the two."""

    name: str  # of the script
    site: Callable[[Path], Site]
    add_options: Callable[[argparse.ArgumentParser], object]  # of "up"
    up: Callable[[Site, argparse.Namespace], str]  # starts it; what it is like, in words
    example: str  # of what a user does there
    prepare: Callable[[Site, argparse.Namespace], object] | None = None


def main(kind: Kind) -> int:
    """The command; returns its exit code."""
    arguments = _parser(kind).parse_args()
    site = kind.site(arguments.directory)
    try:
        _do(kind, site, arguments)
    except (Trouble, OSError, subprocess.CalledProcessError) as error:
        _say(kind, str(error))
        return 1
    return 0


def changes(words: Sequence[str]) -> dict[str, str]:
    """Of ``--set KEY=VALUE``."""
    return dict(word.partition("=")[::2] for word in words)


def _say(kind: Kind, text: str) -> None:
    sys.stderr.write(f"{kind.name}: {text}\n")


def _parser(kind: Kind) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"scripts/{kind.name}")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("up", *(["prepare"] if kind.prepare else [])):
        start = verbs.add_parser(verb)
        start.add_argument("directory", type=Path)
        start.add_argument("--root", type=Path, required=True)
        start.add_argument("--python", required=True)
        start.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
        kind.add_options(start)
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
    lead.add_argument("host", nargs="?", default="127.0.0.1")
    verbs.add_parser("down").add_argument("directory", type=Path)
    return parser


def _do(kind: Kind, site: Site, arguments: argparse.Namespace) -> None:
    if arguments.verb == "up":
        _start(kind, site, arguments)
    elif arguments.verb == "prepare" and kind.prepare:
        kind.prepare(site, arguments)
    elif arguments.verb in ("login", "admin", "python"):
        _become(site, arguments)
    elif arguments.verb == "down":
        site.down()
    elif arguments.verb == "lead-to":
        site.lead_to(arguments.port, arguments.host)
    else:
        for part in arguments.parts:
            getattr(site, arguments.verb)(part)


def _start(kind: Kind, site: Site, arguments: argparse.Namespace) -> None:
    start = time.monotonic()
    what = kind.up(site, arguments)
    folder = arguments.directory
    _say(kind, f"a site of {what} is up after {time.monotonic() - start:.1f} s")
    _say(kind, f"  its facts      {site.file}")
    _say(kind, f"  its users      scripts/{kind.name} login {folder} {kind.example}")
    _say(kind, f"  the way out    {files.CENTRE}:{files.CENTRE_PORT} (lead-to says where it leads)")
    _say(kind, f"  and away       scripts/{kind.name} down {folder}")


def _become(site: Site, arguments: argparse.Namespace) -> None:
    words = arguments.command or ["bash"]
    if arguments.verb == "python":
        command = site.python(arguments.command)
    elif arguments.verb == "admin":
        command = site.command("ctl", words)
    else:
        command = site.command("login", words, files.USER)
    os.execv(command[0], command)  # noqa: S606 - no shell is what we want
