"""What an HTCondor pool offers: the slots that its collector knows, each machine's once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from submitter.backends.htcondor_commands import Commands
from submitter.backends.htcondor_options import Options
from submitter.backends.htcondor_parsing import MACHINE_ATTRIBUTES, Ad, table
from submitter.backends.htcondor_states import RUNNING

MEBIBYTE = 1024**2
PODS = 10_000
_DYNAMIC = 'SlotType isnt "Dynamic"'  # those are parts of others
_FREE_STATES = ("Unclaimed",)


def capacity(commands: Commands, options: Options, ours: Iterable[Ad]) -> dict[str, str]:
    """All that is offered; ``ours``: our jobs in the queue. Raises ``BackendUnavailable``."""
    names = {name: _attribute(name) for name in options.resources.values()}
    wanted = [*MACHINE_ATTRIBUTES]
    for name in names.values():
        wanted += [name, f"TotalSlot{name}"]
    constraint = _DYNAMIC
    if options.collector_constraint:
        constraint = f"{constraint} && ({options.collector_constraint})"
    answer = commands.ask(
        *("condor_status", "-json", "-attributes", ",".join(wanted), "-constraint", constraint)
    )
    slots = table(answer)
    free = options.capacity == "free"
    offer = _sum(slots, "Cpus", "Memory", free=free)
    for resource, name in options.resources.items():
        offer[resource] = _sum(slots, names[name], "Memory", free=free)["cpu"]
    if free:
        for ad in ours:
            if ad.status == RUNNING:
                offer["cpu"] += ad.number("RequestCpus")
                offer["memory"] += ad.number("RequestMemory")
    offer["memory"] *= MEBIBYTE
    offer["pods"] = options.pods or PODS
    return {name: str(amount) for name, amount in offer.items()}


def _attribute(name: str) -> str:
    """``gpus``, as in request_gpus, is GPUs in the ads of machines."""
    return "GPUs" if name.lower() == "gpus" else name


def _sum(slots: Iterable[Mapping[str, Any]], cpus: str, memory: str, free: bool) -> dict[str, int]:
    offer = {"cpu": 0, "memory": 0}
    for slot in slots:
        if free and not (slot.get("PartitionableSlot") or slot.get("State") in _FREE_STATES):
            continue
        before = "" if free else "TotalSlot"
        offer["cpu"] += _whole(slot.get(f"{before}{cpus}"))
        offer["memory"] += _whole(slot.get(f"{before}{memory}"))
    return offer


def _whole(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
