"""What a Slurm site offers: its nodes by sinfo, the number of jobs by the user's limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Optional

from submitter.backends.slurm import parsing
from submitter.backends.slurm.commands import SlurmCommands
from submitter.backends.slurm.options import Options
from submitter.backends.slurm.parsing import Node, Used
from submitter.common.errors import BackendUnavailable

MEBIBYTE = 1024**2
# States of nodes (sinfo(1)) in which they run jobs, or will when asked to. What may stand behind a
# state ($@*~#!%^+-) says more about it; * means that the node does not answer.
USABLE = frozenset(
    "allocated alloc completing comp idle mixed mix planned plnd powered_down powering_up".split()
)
_USABLE_WITH = frozenset("+~#@-$^!")  # $: a maintenance that lies ahead may need them
_LIMITS_OF_USER = ("MaxJobs", "MaxSubmit", "MaxSubmitJobs", "GrpJobs", "GrpSubmit", "GrpSubmitJobs")
_LIMITS_OF_QOS = ("MaxJobsPU", "MaxSubmitPU", "MaxSubmitJobsPU", "GrpJobs", "GrpSubmit")


def capacity(commands: SlurmCommands, options: Options) -> dict[str, str]:
    """All that is offered; raises ``BackendUnavailable``."""
    nodes = _nodes(commands, options)
    usable = [node for node in nodes.values() if is_usable(node.state)]
    offer = _total(usable, options)
    if options.capacity == "free":
        answer = commands.ask(
            *("squeue", "-h", "-u", commands.user, "-t", "RUNNING,COMPLETING"),
            *("-O", parsing.USED_FORMAT),
        )
        offer = _free(usable, parsing.used(answer), options)
    offer["pods"] = options.pods or _jobs(commands, options)
    return {name: str(amount) for name, amount in offer.items()}


def is_usable(state: str) -> bool:
    """Whether a node in this state, as sinfo has it, runs jobs."""
    found = re.fullmatch(r"([a-z_]+)(\W*)", state.strip().lower())
    return found is not None and found[1] in USABLE and set(found[2]) <= _USABLE_WITH


# --- nodes ---------------------------------------------------------------------------------------


def _nodes(commands: SlurmCommands, options: Options) -> Mapping[str, Node]:
    names = options.partitions or tuple(f.partition for f in options.flavors if f.partition)
    wanted = ",".join(dict.fromkeys(names)) or _default_partition(commands)
    chosen = ["-p", wanted] if wanted else []
    answer = commands.ask("sinfo", "-h", "-N", *chosen, "-O", parsing.NODES_FORMAT)
    return parsing.nodes(answer)


def _default_partition(commands: SlurmCommands) -> str:
    names = [name.strip() for name in commands.ask("sinfo", "-h", "-o", "%P").splitlines()]
    return next((name[:-1] for name in names if name.endswith("*")), "")


def _total(nodes: Iterable[Node], options: Options) -> dict[str, int]:
    offer = {"cpu": 0, "memory": 0, **_none(options)}
    for node in nodes:
        offer["cpu"] += node.cpus
        offer["memory"] += node.memory * MEBIBYTE
        _add(offer, node.gres, options)
    return offer


def _free(nodes: Iterable[Node], ours: Used, options: Options) -> dict[str, int]:
    """What nobody has, and what our own jobs have: a quota counts those, too."""
    offer = {"cpu": ours.cpus, "memory": ours.memory, **_none(options)}
    _add(offer, _typed(ours.gres), options)
    for node in nodes:
        offer["cpu"] += node.idle_cpus
        offer["memory"] += max(0, node.memory - node.allocated_memory) * MEBIBYTE
        free = {name: n - node.used_gres.get(name, 0) for name, n in node.gres.items()}
        _add(offer, free, options)
    return offer


def _none(options: Options) -> dict[str, int]:
    return dict.fromkeys(options.gres, 0)


def _typed(gres: Mapping[str, int]) -> dict[str, int]:
    """Without the sums of all types, where the types are listed, too."""
    kinds = {name.partition(":")[0] for name in gres if ":" in name}
    return {name: amount for name, amount in gres.items() if name not in kinds}


def _add(offer: dict[str, int], gres: Mapping[str, int], options: Options) -> None:
    """Count generic resources under the names that pods have for them, each one once."""
    for name, amount in gres.items():
        resource = _resource(name, options.gres)
        if resource is not None:
            offer[resource] += max(0, amount)


def _resource(gres: str, names: Mapping[str, str]) -> Optional[str]:
    """The name that says most: gpu:a100 before gpu."""
    fitting = [r for r, name in names.items() if gres == name or gres.startswith(f"{name}:")]
    return max(fitting, key=lambda resource: len(names[resource]), default=None)


# --- the number of jobs --------------------------------------------------------------------------


def _jobs(commands: SlurmCommands, options: Options) -> int:
    """The smallest limit of the user's; of several QoS the sum; else what Slurm holds at all."""
    most = _number(commands.configuration().get("MaxJobCount", "")) or 10000
    if not commands.has_accounting():
        return most
    try:
        associations = parsing.limits(
            commands.ask("sacctmgr", "-P", "show", "assoc", f"user={commands.user}")
        )
        kinds = parsing.limits(commands.ask("sacctmgr", "-P", "show", "qos"))
    except BackendUnavailable:
        return most
    cluster = commands.configuration().get("ClusterName", "")
    own = [row for row in associations if row.get("Cluster", cluster) in ("", cluster)]
    return jobs_allowed(own, kinds, options, most)


def jobs_allowed(
    associations: Iterable[Mapping[str, str]],
    kinds: Iterable[Mapping[str, str]],
    options: Options,
    most: int,
) -> int:
    """How many jobs the limits in the output of sacctmgr leave, at most so many."""
    of_qos = {row.get("Name", ""): _smallest(row, _LIMITS_OF_QOS) for row in kinds}
    accounts = {flavor.account for flavor in options.flavors if flavor.account}
    rows = [r for r in associations if not accounts or r.get("Account") in accounts]
    wanted = {flavor.qos for flavor in options.flavors if flavor.qos}
    wanted |= {row.get("Def QOS", "") for row in rows if not wanted}
    by_qos = [of_qos.get(name) for name in wanted] or [None]
    by_user = [_smallest(row, _LIMITS_OF_USER) for row in rows] or [None]
    return min(_sum(by_qos, most), _sum(by_user, most), most)


def _sum(limits: Iterable[Optional[int]], most: int) -> int:
    return sum(most if limit is None else limit for limit in limits)


def _smallest(row: Mapping[str, str], keys: Iterable[str]) -> Optional[int]:
    found = [number for number in (_number(row.get(key, "")) for key in keys) if number is not None]
    return min(found, default=None)


def _number(text: str) -> Optional[int]:
    return int(text) if text.strip().isdigit() else None
