"""The capacity of a Slurm site: its nodes by sinfo, the number of jobs by the user's limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Optional

from submitter.backends.slurm import parsing
from submitter.backends.slurm.commands import SlurmCommands
from submitter.backends.slurm.options import Options
from submitter.backends.slurm.parsing import Node, UsedResources
from submitter.common.errors import BackendUnavailable

MEBIBYTE = 1024**2
# States of nodes (sinfo(1)) in which they run jobs, or can be started to. A suffix ($@*~#!%^+-)
# says more about a state; * means that the node does not respond.
USABLE = frozenset(
    "allocated alloc completing comp idle mixed mix planned plnd powered_down powering_up".split()
)
_USABLE_WITH = frozenset("+~#@-$^!")  # $: a maintenance that lies ahead may need them
_LIMITS_OF_USER = ("MaxJobs", "MaxSubmit", "MaxSubmitJobs", "GrpJobs", "GrpSubmit", "GrpSubmitJobs")
_LIMITS_OF_QOS = ("MaxJobsPU", "MaxSubmitPU", "MaxSubmitJobsPU", "GrpJobs", "GrpSubmit")


def read_capacity(commands: SlurmCommands, options: Options) -> dict[str, str]:
    """Return the resources on offer; raise ``BackendUnavailable`` if Slurm does not respond."""
    nodes = _query_nodes(commands, options)
    usable = [node for node in nodes.values() if is_usable(node.state)]
    offer = _sum_nodes(usable, options)
    if options.capacity == "free":
        answer = commands.query(
            *("squeue", "-h", "-u", commands.user, "-t", "RUNNING,COMPLETING"),
            *("-O", parsing.USED_FORMAT),
        )
        offer = _sum_free(usable, parsing.parse_used(answer), options)
    offer["pods"] = options.pods or _read_max_jobs(commands, options)
    return {name: str(amount) for name, amount in offer.items()}


def is_usable(state: str) -> bool:
    """Return whether a node in this state, as sinfo prints it, runs jobs."""
    found = re.fullmatch(r"([a-z_]+)(\W*)", state.strip().lower())
    return found is not None and found[1] in USABLE and set(found[2]) <= _USABLE_WITH


# --- nodes ---------------------------------------------------------------------------------------


def _query_nodes(commands: SlurmCommands, options: Options) -> Mapping[str, Node]:
    names = options.partitions or tuple(f.partition for f in options.flavors if f.partition)
    wanted = ",".join(dict.fromkeys(names)) or _query_default_partition(commands)
    chosen = ["-p", wanted] if wanted else []
    answer = commands.query("sinfo", "-h", "-N", *chosen, "-O", parsing.NODES_FORMAT)
    return parsing.parse_nodes(answer)


def _query_default_partition(commands: SlurmCommands) -> str:
    names = [name.strip() for name in commands.query("sinfo", "-h", "-o", "%P").splitlines()]
    return next((name[:-1] for name in names if name.endswith("*")), "")


def _sum_nodes(nodes: Iterable[Node], options: Options) -> dict[str, int]:
    offer = {"cpu": 0, "memory": 0, **_zero_resources(options)}
    for node in nodes:
        offer["cpu"] += node.cpus
        offer["memory"] += node.memory * MEBIBYTE
        _add_gres(offer, node.gres, options)
    return offer


def _sum_free(nodes: Iterable[Node], ours: UsedResources, options: Options) -> dict[str, int]:
    """Return what is free plus what our own jobs have: a quota counts those, too."""
    offer = {"cpu": ours.cpus, "memory": ours.memory, **_zero_resources(options)}
    _add_gres(offer, _drop_type_sums(ours.gres), options)
    for node in nodes:
        offer["cpu"] += node.idle_cpus
        offer["memory"] += max(0, node.memory - node.allocated_memory) * MEBIBYTE
        free = {name: n - node.used_gres.get(name, 0) for name, n in node.gres.items()}
        _add_gres(offer, free, options)
    return offer


def _zero_resources(options: Options) -> dict[str, int]:
    return dict.fromkeys(options.gres, 0)


def _drop_type_sums(gres: Mapping[str, int]) -> dict[str, int]:
    """Remove the sums of all types, where the types are listed, too."""
    kinds = {name.partition(":")[0] for name in gres if ":" in name}
    return {name: amount for name, amount in gres.items() if name not in kinds}


def _add_gres(offer: dict[str, int], gres: Mapping[str, int], options: Options) -> None:
    """Add generic resources under the names that pods have for them, each one once."""
    for name, amount in gres.items():
        resource = _find_resource(name, options.gres)
        if resource is not None:
            offer[resource] += max(0, amount)


def _find_resource(gres: str, names: Mapping[str, str]) -> Optional[str]:
    """Return the resource with the most specific match: gpu:a100 before gpu."""
    fitting = [r for r, name in names.items() if gres == name or gres.startswith(f"{name}:")]
    return max(fitting, key=lambda resource: len(names[resource]), default=None)


# --- the number of jobs --------------------------------------------------------------------------


def _read_max_jobs(commands: SlurmCommands, options: Options) -> int:
    """Return the user's smallest limit, of several QoS their sum; Slurm's own limit if none."""
    most = _parse_number(commands.configuration().get("MaxJobCount", "")) or 10000
    if not commands.has_accounting():
        return most
    try:
        associations = parsing.parse_limits(
            commands.query("sacctmgr", "-P", "show", "assoc", f"user={commands.user}")
        )
        kinds = parsing.parse_limits(commands.query("sacctmgr", "-P", "show", "qos"))
    except BackendUnavailable:
        return most
    cluster = commands.configuration().get("ClusterName", "")
    own = [row for row in associations if row.get("Cluster", cluster) in ("", cluster)]
    return max_jobs(own, kinds, options, most)


def max_jobs(
    associations: Iterable[Mapping[str, str]],
    kinds: Iterable[Mapping[str, str]],
    options: Options,
    most: int,
) -> int:
    """Return the number of jobs that the limits of sacctmgr allow; ``most`` if they name none."""
    limits_of_qos = {row.get("Name", ""): _smallest_limit(row, _LIMITS_OF_QOS) for row in kinds}
    accounts = {flavor.account for flavor in options.flavors if flavor.account}
    rows = [r for r in associations if not accounts or r.get("Account") in accounts]
    wanted = {flavor.qos for flavor in options.flavors if flavor.qos}
    wanted |= {row.get("Def QOS", "") for row in rows if not wanted}
    by_qos = [limits_of_qos.get(name) for name in wanted] or [None]
    by_user = [_smallest_limit(row, _LIMITS_OF_USER) for row in rows] or [None]
    return min(_sum_limits(by_qos, most), _sum_limits(by_user, most), most)


def _sum_limits(limits: Iterable[Optional[int]], most: int) -> int:
    return sum(most if limit is None else limit for limit in limits)


def _smallest_limit(row: Mapping[str, str], keys: Iterable[str]) -> Optional[int]:
    limits = (_parse_number(row.get(key, "")) for key in keys)
    return min((limit for limit in limits if limit is not None), default=None)


def _parse_number(text: str) -> Optional[int]:
    return int(text) if text.strip().isdigit() else None
