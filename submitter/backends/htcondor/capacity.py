"""What an HTCondor pool offers: the slots that its collector knows, each machine's once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from submitter.backends.htcondor.commands import HTCondorCommands
from submitter.backends.htcondor.options import Options
from submitter.backends.htcondor.parsing import MACHINE_ATTRIBUTES, Ad, table
from submitter.backends.htcondor.states import RUNNING

MEBIBYTE = 1024**2
PODS = 10_000
_DYNAMIC = 'SlotType isnt "Dynamic"'  # those are parts of others


def capacity(commands: HTCondorCommands, options: Options, ours: Iterable[Ad]) -> dict[str, str]:
    """All that is offered; raises ``BackendUnavailable``.

    ``ours``: our jobs in the queue, where only what is free is offered, and what they have.
    """
    names = {name: attribute_of(name) for name in options.resources.values()}
    wanted = [*MACHINE_ATTRIBUTES]
    for name in names.values():
        wanted += [name, f"TotalSlot{name}"]
    constraint = _DYNAMIC
    if options.collector_constraint:
        constraint = f"{constraint} && ({options.collector_constraint})"
    answer = commands.query(
        *("condor_status", "-json", "-attributes", ",".join(wanted), "-constraint", constraint)
    )
    slots = table(answer)
    if options.capacity == "free":
        slots = [slot for slot in slots if _has_room(slot)]
    before = "" if options.capacity == "free" else "TotalSlot"
    offer = {"cpu": _sum(slots, f"{before}Cpus"), "memory": _sum(slots, f"{before}Memory")}
    for resource, name in options.resources.items():
        offer[resource] = _sum(slots, f"{before}{names[name]}")
    for ad in ours:
        if ad.status == RUNNING:  # a quota counts those, too
            offer["cpu"] += ad.number("RequestCpus")
            offer["memory"] += ad.number("RequestMemory")
            for resource, name in options.resources.items():
                offer[resource] += ad.number(f"Request{names[name]}")
    offer["memory"] *= MEBIBYTE
    offer["pods"] = options.pods or PODS
    return {name: str(amount) for name, amount in offer.items()}


def attribute_of(name: str) -> str:
    """``gpus``, as in request_gpus, is GPUs in the ads of machines, and RequestGPUs in a job's."""
    return "GPUs" if name.lower() == "gpus" else name


def _has_room(slot: Mapping[str, Any]) -> bool:
    return bool(slot.get("PartitionableSlot")) or slot.get("State") == "Unclaimed"


def _sum(slots: Iterable[Mapping[str, Any]], attribute: str) -> int:
    values = [slot.get(attribute) for slot in slots]
    return sum(int(value) for value in values if isinstance(value, (int, float)))
