"""How much longer a job takes under Apptainer than a bare ``apptainer exec`` of the same command.

One row for each way in which an image is started: an image file and an unpacked directory, each
read-only and with a writable layer over it (what a pod gets that says nothing). Both sides run in
turns, inside the site's root as its ordinary user and timed by one bash there, so that getting in
costs neither of them anything. The median of each counts.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from templates.cli.render_pod import write_job
from templates.site.build_config import BuildConfig, Runtime
from templates.translation.build import build
from tests.bench.rows import Row
from tests.support.script_runner import ALICE, SITE_ROOT, manifests, pod

ROUNDS = 20
SIF = "/srv/images/busybox_1.36.sif"
TREE = "/srv/images/tree"
CONFIG = BuildConfig(runtime=Runtime(name="apptainer"))
READ_ONLY: dict[str, Any] = {"securityContext": {"readOnlyRootFilesystem": True}}

# For each job's directory: its time and that of the bare command, in microseconds.
MEASURE = r"""
cd /
mkdir "$1/spool"
for job in "$1"/job-*; do
    t0=${EPOCHREALTIME/./}
    bash "$job/job.sh" "$job" "$1/spool" </dev/null >/dev/null 2>&1 || exit 1
    t1=${EPOCHREALTIME/./}
    "${@:2}" </dev/null >/dev/null 2>&1 || exit 1
    t2=${EPOCHREALTIME/./}
    echo $((t1 - t0)) $((t2 - t1))
done
"""


class Pair(NamedTuple):
    """A pod's container, and the bare command that it is compared with."""

    name: str
    container: dict[str, Any]
    bare: tuple[str, ...]


PAIRS = (
    Pair(
        "apptainer: SIF, read-only",
        {"image": SIF, "command": ["true"], **READ_ONLY},
        ("apptainer", "exec", SIF, "true"),
    ),
    Pair(
        "apptainer: SIF, writable",
        {"image": SIF, "command": ["true"]},
        ("apptainer", "exec", "--writable-tmpfs", SIF, "true"),
    ),
    Pair(
        "apptainer: directory, read-only",
        {"image": TREE, "command": ["true"], **READ_ONLY},
        ("apptainer", "exec", TREE, "true"),
    ),
    Pair(
        "apptainer: directory, writable",
        {"image": TREE, "command": ["true"]},
        ("apptainer", "exec", "--writable-tmpfs", TREE, "true"),
    ),
)


def prepare(pair: Pair, folder: Path) -> None:
    """The directories of the jobs, for the site's user."""
    job = build(manifests(pod(pair.container)), CONFIG)
    for number in range(ROUNDS + 1):
        write_job(job, folder / f"job-{number}")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, ALICE, ALICE)


def seconds(told: str) -> Iterator[tuple[float, float]]:
    """The time of our job and of the bare command, round by round; the first one only warms up."""
    for line in told.splitlines()[1:]:
        ours, theirs = line.split()
        yield int(ours) / 1e6, int(theirs) / 1e6


def row(name: str, pair: Pair, told: str) -> Row:
    """From what ``MEASURE`` has told."""
    ours, theirs = (statistics.median(side) for side in zip(*seconds(told)))
    return Row(name, ours, "s", " ".join(pair.bare), theirs, "<=", 1.3)


def measured(pair: Pair, folder: Path) -> Row:
    prepare(pair, folder)
    done = subprocess.run(
        [str(SITE_ROOT), "run", "bash", "-c", MEASURE, "measure", str(folder), *pair.bare],
        env={**os.environ, "SITE_BIND": str(folder.parent)},
        check=True,
        capture_output=True,
        text=True,
    )
    return row(pair.name, pair, done.stdout)


def run() -> list[Row]:
    """All rows; what lies in the folder goes in any case."""
    subprocess.run([str(SITE_ROOT), "make"], check=True)
    parent = Path(tempfile.mkdtemp(prefix="interlink-bench-", dir="/var/tmp"))
    parent.chmod(0o755)
    try:
        return [measured(pair, parent / str(number)) for number, pair in enumerate(PAIRS)]
    finally:
        shutil.rmtree(parent)
