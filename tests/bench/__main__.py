"""Run benchmarks, print their table, and fail when a bar does not hold.

A benchmark is a module of this package with ``run() -> list[Row]``, known by the module's name.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from tests.bench.rows import Row

# In the order in which they run.
BENCHMARKS = {
    "translate": "pods translated per second, against a bare Flask under gunicorn",
    "apptainer": "one job under Apptainer, against a bare apptainer exec with the same image",
    "podman": "a hello pod on a podman host, against podman run; calls of podman with 1,000 pods",
    "kubernetes": "calls to the API server of a cluster that is a pool, with 1,000 running pods",
    "create": "pods created per second, up to the journal at the site",
    "status": "GET /status of one pod, and of a thousand in one call",
    "logs": "a log of 1 GB through getLogs",
    "slurm": "pods through a real Slurm, against sbatch by hand",
    "htcondor": "pods through a real HTCondor, against condor_submit by hand",
    "kueue": "the operator: writes at rest, a change of quota, a round of 200 pools",
    "chain": "the whole chain: a job's first line of log, and 500 jobs through Kueue to one site",
    "scale": "10,000 finished jobs: memory, cost at rest, a restarted plugin",
}


def table(rows: list[Row]) -> str:
    """Lay the rows out in columns."""
    head = ("benchmark", "ours", "against", "theirs", "ratio", "bar", "holds")
    lines = [head, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines
    )


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, add_help=False)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run what was asked for; 1 when a bar does not hold, 2 for a wrong name."""
    args = arguments(argv)
    unknown = [name for name in args.names if name not in BENCHMARKS]
    if unknown:
        known = " ".join(BENCHMARKS)
        print(f'bench: no benchmark is called "{unknown[0]}": {known}', file=sys.stderr)
        return 2
    if args.list:
        print("\n".join(f"{name:<12} {what}" for name, what in BENCHMARKS.items()))
        return 0
    rows: list[Row] = []
    for name in args.names or BENCHMARKS:
        print(f"bench: {name}: {BENCHMARKS[name]}", file=sys.stderr)
        rows += importlib.import_module(f"tests.bench.{name}").run()
    print(table(rows))
    if args.json:
        text = json.dumps([row.as_json() for row in rows], indent=1) + "\n"
        try:
            args.json.write_text(text, encoding="utf-8")
        except OSError as error:
            print(f"bench: {args.json}: {error.strerror}", file=sys.stderr)
            return 2
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
