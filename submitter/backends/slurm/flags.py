"""Flags of sbatch as people write them: parsed, merged, and written as #SBATCH lines.

Flags of a later source override those of an earlier one, whole groups at a time: a pod that
requests ``--mem-per-cpu`` does not get the ``--mem`` that would follow from its resources.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Optional

from submitter.backends.slurm.parsing import parse_size
from submitter.common.errors import Forbidden
from templates.common.errors import one_line

Flags = dict[str, Optional[str]]  # long name -> value; None for a flag without one
LONGEST = 1000  # of a flag; some versions truncate longer lines
MEBIBYTE = 1024**2

_SHORT: Mapping[str, str] = {
    pair[0]: pair[2:]
    for pair in (
        "a=array A=account b=begin B=extra-node-info c=cpus-per-task C=constraint"
        " d=dependency D=chdir e=error F=nodefile G=gpus h=help H=hold i=input J=job-name"
        " k=no-kill L=licenses m=distribution M=clusters n=ntasks N=nodes o=output"
        " O=overcommit p=partition q=qos Q=quiet s=oversubscribe S=core-spec t=time v=verbose"
        " V=version w=nodelist W=wait x=exclude"
    ).split()
}
_BARE = frozenset(  # flags that never take a value
    "contiguous help hold ignore-pbs no-requeue overcommit parsable quiet reboot resv-ports"
    " spread-job spread-segments test-only usage use-min-nodes verbose version wait".split()
)
_MAYBE = frozenset(  # flags whose value, if any, follows a =
    "exclusive get-user-env nice no-kill oom-kill-step oversubscribe propagate requeue wrap".split()
)
_VALUED = frozenset(
    "account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment"
    " constraint container container-id container-type core-spec cores-per-socket cpu-freq"
    " cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude export"
    " export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket"
    " gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type"
    " mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile nodelist"
    " nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode"
    " output partition power prefer priority profile qos reservation segment signal"
    " sockets-per-node switches thread-spec threads-per-core time time-min tmp tres-bind"
    " tres-per-task uid wait-all-nodes wckey".split()
)
KNOWN = _BARE | _MAYBE | _VALUED

# Flags that no pod can use, whatever the policy says, and why.
NEVER: Mapping[str, str] = {
    "array": "a pod is one job",
    "clusters": "the pool is one cluster",
    "export": "a pod's environment is its own",
    "export-file": "a pod's environment is its own",
    "get-user-env": "a pod's environment is its own",
    "gid": "jobs run as the user that submits them",
    "help": "nothing would be submitted",
    "test-only": "nothing would be submitted",
    "uid": "jobs run as the user that submits them",
    "usage": "nothing would be submitted",
    "version": "nothing would be submitted",
    "wait": "nobody would wait",
    "wrap": "the pod's script is what runs",
}
_DROPPED = ("ignore-pbs", "parsable", "quiet", "verbose")  # they change nothing for the job
_GPUS = frozenset(("gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"))
_GROUPS = (
    _GPUS,
    frozenset(("mem", "mem-per-cpu", "mem-per-gpu")),
    frozenset(("cpus-per-task", "cpus-per-gpu")),
    frozenset(name for name in _VALUED if name == "nodes" or name.startswith("ntasks")),
    frozenset(("requeue", "no-requeue")),
)


def parse(arguments: Iterable[str], field: str) -> Flags:
    """Parse arguments such as ``-n 4 --mem=2G``; raise ``Forbidden`` for an unknown flag."""
    found: Flags = {}
    remaining = iter(arguments)
    for argument in remaining:
        name, value = _split_flag(argument, field)
        if name in _VALUED and value is None:
            value = next(remaining, None)
            if value is None:
                raise Forbidden(f"{field}: nothing follows {argument}")
        _check(name, value, field)
        if name not in _DROPPED:
            found.pop(name, None)  # the last one counts, and stands where it is
            found[name] = value
    return found


def split_words(text: str, field: str) -> list[str]:
    """Split an annotation into words, as a shell would."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise Forbidden(f"{field}: cannot be split into words: {error}") from None


def _split_flag(argument: str, field: str) -> tuple[str, Optional[str]]:
    """Return the long name, and the value if it is part of the same argument."""
    if argument.startswith("--") and len(argument) > 2:
        name, equals, value = argument[2:].partition("=")
        name = _expand_name(name, field)
        if equals and name in _BARE:
            raise Forbidden(f"{field}: --{name} takes no value")
        return name, value if equals else None
    if len(argument) < 2 or argument[0] != "-" or argument[1] not in _SHORT:
        raise Forbidden(f"{field}: {one_line(argument, 80)} is no flag of sbatch")
    name = _SHORT[argument[1]]
    rest = argument[2:]
    if rest and name in _BARE:
        raise Forbidden(f"{field}: {one_line(argument, 80)}: write each flag as a word of its own")
    return name, rest or None


def _expand_name(name: str, field: str) -> str:
    """Complete an abbreviated name: sbatch accepts every unique beginning of one."""
    if name in KNOWN or not name:
        return name
    fitting = [known for known in KNOWN if known.startswith(name)]
    if len(fitting) > 1:
        shown = ", ".join(f"--{known}" for known in sorted(fitting)[:4])
        raise Forbidden(f"{field}: --{one_line(name, 40)} could be {shown}")
    return fitting[0] if fitting else name


def _check(name: str, value: Optional[str], field: str) -> None:
    if name in NEVER:
        raise Forbidden(f"{field}: --{name} cannot be used here: {NEVER[name]}")
    text = f"{name}={value}" if value else name
    if not text.isprintable():
        error = "holds a character that cannot be printed"
        raise Forbidden(f"{field}: --{one_line(name, 40)} {error}")
    if len(text) > LONGEST:
        error = f"is longer than {LONGEST} characters"
        raise Forbidden(f"{field}: --{one_line(name, 40)} {error}")
    if not name.replace("-", "").isalnum() or not name.isascii():
        raise Forbidden(f"{field}: --{one_line(name, 40)} is no flag of sbatch")


def merge(*sources: Flags) -> Flags:
    """Merge sources of flags; a later flag overrides the whole group that it belongs to."""
    result: Flags = {}
    for source in sources:
        for group in _GROUPS:
            if not group.isdisjoint(source):
                result = {name: value for name, value in result.items() if name not in group}
        if "gres" not in source and not _GPUS.isdisjoint(source):
            result = drop_gpus(result)
        if "gpu" in _gres_kinds(source.get("gres")):
            result = {name: value for name, value in result.items() if name not in _GPUS}
        gres = _merge_gres(result.get("gres"), source.get("gres"))
        result = {name: value for name, value in result.items() if name not in source}
        result.update(source)
        if gres:
            result["gres"] = gres
    return result


def _merge_gres(earlier: Optional[str], later: Optional[str]) -> Optional[str]:
    """Return the later value, with the resources of other kinds of the earlier one."""
    if not earlier or not later or later == "none":
        return later
    kinds = _gres_kinds(later)
    others = [part for part in earlier.split(",") if not _gres_kinds(part) <= kinds]
    return ",".join([*others, later])


def _gres_kinds(gres: Optional[str]) -> set[str]:
    return {name.partition(":")[0] for name in parse_gres(gres or "")}


def drop_gpus(flags: Flags) -> Flags:
    """Remove the flags that request GPUs."""
    parts = (flags.get("gres") or "").split(",")
    others = [part for part in parts if part and "gpu" not in _gres_kinds(part)]
    rest = {name: value for name, value in flags.items() if name not in ("gres", *_GPUS)}
    return {**rest, "gres": ",".join(others)} if others else rest


def format_lines(flags: Flags) -> str:
    """Write flags as #SBATCH lines. A backslash escapes any character there, also in quotes."""
    written = ""
    for name, value in flags.items():
        text = f"--{name}" if value is None else f"--{name}={value}"
        if not text.replace("-", "").replace("=", "").replace(":", "").isalnum():
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            text = f'"{escaped}"'
        written += f"#SBATCH {text}\n"
    return written


# --- resources that flags request ----------------------------------------------------------------


def count_tasks(flags: Flags) -> int:
    """Return the least number of tasks of a job with these flags."""
    nodes = _parse_minimum(flags.get("nodes"))
    if flags.get("ntasks"):
        return _parse_minimum(flags["ntasks"])
    return nodes * _parse_minimum(flags.get("ntasks-per-node"))


def count_cpus(flags: Flags) -> int:
    """Return the number of cores of all tasks."""
    return count_tasks(flags) * _parse_minimum(flags.get("cpus-per-task"))


def sum_memory_bytes(flags: Flags) -> int:
    """Return the memory of all nodes; 0 for all that they have, or Slurm's own default."""
    if flags.get("mem-per-cpu"):
        return (parse_size(flags["mem-per-cpu"] or "") or 0) * count_cpus(flags)
    if flags.get("mem-per-gpu"):
        return (parse_size(flags["mem-per-gpu"] or "") or 0) * count_gpus(flags)
    return (parse_size(flags.get("mem") or "") or 0) * _parse_minimum(flags.get("nodes"))


def count_gpus(flags: Flags) -> int:
    """Return the number of GPUs on all nodes."""
    if flags.get("gpus"):
        return _sum_counts(flags["gpus"] or "")
    if flags.get("gpus-per-task"):
        return _sum_counts(flags["gpus-per-task"] or "") * count_tasks(flags)
    nodes = _parse_minimum(flags.get("nodes"))
    if flags.get("gpus-per-node"):
        return _sum_counts(flags["gpus-per-node"] or "") * nodes
    requested = parse_gres(flags.get("gres") or "")
    return nodes * sum(n for name, n in requested.items() if name.partition(":")[0] == "gpu")


def parse_gres(text: str) -> dict[str, int]:
    """Parse ``gpu:a100:2,shard`` into {gpu:a100: 2, shard: 1}."""
    found: dict[str, int] = {}
    for part in text.replace("gres/", "").split(","):
        name, _, count = part.replace("=", ":").rpartition(":")
        if not count.isdigit():
            name, count = part, "1"
        if name:
            found[name] = found.get(name, 0) + int(count)
    return found


def _sum_counts(text: str) -> int:
    """Add up the numbers of ``a100:2,h100:1`` or ``2``."""
    parts = [part.rpartition(":")[2] for part in text.split(",")]
    return sum(int(part) if part.isdigit() else 1 for part in parts)


def _parse_minimum(text: Optional[str]) -> int:
    """Return the smaller number of ``2-4``; 1 if there is none."""
    first = (text or "").partition("-")[0]
    return int(first) if first.isdigit() else 1


def format_mebibytes(amount: int) -> str:
    """Write an amount as sbatch reads it, rounded up."""
    return f"{max(1, ceil(amount / MEBIBYTE))}M"
