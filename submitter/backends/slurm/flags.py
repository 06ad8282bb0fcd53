"""Flags of sbatch as people write them: read into options, put together, written as #SBATCH lines.

A later source of options wins over an earlier one, whole groups at a time: who asks for
``--mem-per-cpu`` does not get the ``--mem`` that would follow from the pod.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Optional

from submitter.backends.slurm.parsing import size
from submitter.common.errors import Forbidden
from templates.common.errors import one_line

Options = dict[str, Optional[str]]  # long name -> value; None for a flag without one
LONGEST = 1000  # of a word; some versions cut longer lines off
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
_MAYBE = frozenset(  # flags whose value, if any, stands behind a =
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

# What no pod can ask for, whatever the policy says, and why.
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


def parse(words: Iterable[str], where: str) -> Options:
    """The options in words such as ``-n 4 --mem=2G``; ``Forbidden`` for what is no flag."""
    found: Options = {}
    waiting = iter(words)
    for word in waiting:
        name, value = _split(word, where)
        if name in _VALUED and value is None:
            value = next(waiting, None)
            if value is None:
                raise Forbidden(f"{where}: nothing follows {word}")
        _check(name, value, where)
        if name not in _DROPPED:
            found.pop(name, None)  # the last one counts, and stands where it is
            found[name] = value
    return found


def words_of(text: str, where: str) -> list[str]:
    """The words of an annotation, as a shell would see them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise Forbidden(f"{where}: cannot be split into words: {error}") from None


def _split(word: str, where: str) -> tuple[str, Optional[str]]:
    """Long name and value, as far as the value stands in the same word."""
    if word.startswith("--") and len(word) > 2:
        name, equals, value = word[2:].partition("=")
        name = _full_name(name, where)
        if equals and name in _BARE:
            raise Forbidden(f"{where}: --{name} takes no value")
        return name, value if equals else None
    if len(word) < 2 or word[0] != "-" or word[1] not in _SHORT:
        raise Forbidden(f"{where}: {one_line(word, 80)} is no flag of sbatch")
    name = _SHORT[word[1]]
    rest = word[2:]
    if rest and name in _BARE:
        raise Forbidden(f"{where}: {one_line(word, 80)}: write each flag as a word of its own")
    return name, rest or None


def _full_name(name: str, where: str) -> str:
    """sbatch takes every beginning of a name that fits no other one."""
    if name in KNOWN or not name:
        return name
    fitting = [known for known in KNOWN if known.startswith(name)]
    if len(fitting) > 1:
        shown = ", ".join(f"--{known}" for known in sorted(fitting)[:4])
        raise Forbidden(f"{where}: --{one_line(name, 40)} could be {shown}")
    return fitting[0] if fitting else name


def _check(name: str, value: Optional[str], where: str) -> None:
    if name in NEVER:
        raise Forbidden(f"{where}: --{name} cannot be used here: {NEVER[name]}")
    text = f"{name}={value}" if value else name
    if not text.isprintable() or len(text) > LONGEST:
        what = f"is longer than {LONGEST} characters"
        if not text.isprintable():
            what = "holds a character that cannot be printed"
        raise Forbidden(f"{where}: --{one_line(name, 40)} {what}")
    if not name.replace("-", "").isalnum() or not name.isascii():
        raise Forbidden(f"{where}: --{one_line(name, 40)} is no flag of sbatch")


def merged(*sources: Options) -> Options:
    """All of them; a later one wins over an earlier one, with the whole group of a flag."""
    result: Options = {}
    for source in sources:
        for group in _GROUPS:
            if not group.isdisjoint(source):
                result = {name: value for name, value in result.items() if name not in group}
        if "gres" not in source and not _GPUS.isdisjoint(source):
            result = without_gpus(result)
        if "gpu" in _kinds(source.get("gres")):
            result = {name: value for name, value in result.items() if name not in _GPUS}
        gres = _both_gres(result.get("gres"), source.get("gres"))
        result = {name: value for name, value in result.items() if name not in source}
        result.update(source)
        if gres:
            result["gres"] = gres
    return result


def _both_gres(earlier: Optional[str], later: Optional[str]) -> Optional[str]:
    """The later one, and of the earlier one what it says of other kinds of resources."""
    if not earlier or not later or later == "none":
        return later
    kinds = _kinds(later)
    return ",".join([part for part in earlier.split(",") if not _kinds(part) <= kinds] + [later])


def _kinds(gres: Optional[str]) -> set[str]:
    return {name.partition(":")[0] for name in wanted_gres(gres or "")}


def without_gpus(options: Options) -> Options:
    """The same for a job without GPUs."""
    parts = (options.get("gres") or "").split(",")
    others = [part for part in parts if part and "gpu" not in _kinds(part)]
    rest = {name: value for name, value in options.items() if name not in ("gres", *_GPUS)}
    return {**rest, "gres": ",".join(others)} if others else rest


def lines(options: Options) -> str:
    """As #SBATCH lines. Slurm takes a backslash before any character, also between quotes."""
    written = ""
    for name, value in options.items():
        text = f"--{name}" if value is None else f"--{name}={value}"
        if not text.replace("-", "").replace("=", "").replace(":", "").isalnum():
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            text = f'"{escaped}"'
        written += f"#SBATCH {text}\n"
    return written


# --- what options ask for ------------------------------------------------------------------------


def tasks(options: Options) -> int:
    """How many tasks a job of these options has at least."""
    nodes = _least(options.get("nodes"))
    if options.get("ntasks"):
        return _least(options["ntasks"])
    return nodes * _least(options.get("ntasks-per-node"))


def cpus(options: Options) -> int:
    """In all."""
    return tasks(options) * _least(options.get("cpus-per-task"))


def memory_bytes(options: Options) -> int:
    """In all; 0 for the whole memory of its nodes, or Slurm's own default."""
    if options.get("mem-per-cpu"):
        return (size(options["mem-per-cpu"] or "") or 0) * cpus(options)
    if options.get("mem-per-gpu"):
        return (size(options["mem-per-gpu"] or "") or 0) * gpus(options)
    return (size(options.get("mem") or "") or 0) * _least(options.get("nodes"))


def gpus(options: Options) -> int:
    """In all."""
    if options.get("gpus"):
        return _count(options["gpus"] or "")
    if options.get("gpus-per-task"):
        return _count(options["gpus-per-task"] or "") * tasks(options)
    nodes = _least(options.get("nodes"))
    if options.get("gpus-per-node"):
        return _count(options["gpus-per-node"] or "") * nodes
    asked = wanted_gres(options.get("gres") or "")
    return nodes * sum(n for name, n in asked.items() if name.partition(":")[0] == "gpu")


def wanted_gres(text: str) -> dict[str, int]:
    """``gpu:a100:2,shard`` as {gpu:a100: 2, shard: 1}."""
    found: dict[str, int] = {}
    for part in text.replace("gres/", "").split(","):
        name, _, count = part.replace("=", ":").rpartition(":")
        if not count.isdigit():
            name, count = part, "1"
        if name:
            found[name] = found.get(name, 0) + int(count)
    return found


def _count(text: str) -> int:
    """``a100:2,h100:1`` and ``2``."""
    parts = [part.rpartition(":")[2] for part in text.split(",")]
    return sum(int(part) if part.isdigit() else 1 for part in parts)


def _least(text: Optional[str]) -> int:
    """The smaller number of ``2-4``; 1 where there is none."""
    first = (text or "").partition("-")[0]
    return int(first) if first.isdigit() else 1


def mebibytes(amount: int) -> str:
    """As sbatch takes it, never less."""
    return f"{max(1, ceil(amount / MEBIBYTE))}M"
