"""The capacity of an HTCondor pool: the slots in its collector, each machine's once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from submitter.backends.htcondor.commands import HTCondorCommands
from submitter.backends.htcondor.options import Options
from submitter.backends.htcondor.parsing import MACHINE_ATTRIBUTES, Ad, parse_table
from submitter.backends.htcondor.states import RUNNING

MEBIBYTE = 1024**2
PODS = 10_000
_NOT_DYNAMIC = 'SlotType isnt "Dynamic"'  # dynamic slots are parts of others


def read_capacity(
    commands: HTCondorCommands, options: Options, ours: Iterable[Ad]
) -> dict[str, str]:
    """Return the resources on offer; raise ``BackendUnavailable`` if HTCondor does not respond.

    ``ours``: our jobs in the queue; where only free resources are offered, theirs are added.
    """
    names = {name: attribute_name(name) for name in options.resources.values()}
    wanted = [*MACHINE_ATTRIBUTES]
    for name in names.values():
        wanted += [name, f"TotalSlot{name}"]
    constraint = _NOT_DYNAMIC
    if options.collector_constraint:
        constraint = f"{constraint} && ({options.collector_constraint})"
    output = commands.query(
        *("condor_status", "-json", "-attributes", ",".join(wanted), "-constraint", constraint)
    )
    slots = parse_table(output)
    if options.capacity == "free":
        slots = [slot for slot in slots if _is_free(slot)]
    prefix = "" if options.capacity == "free" else "TotalSlot"
    offer = {
        "cpu": _sum_attribute(slots, f"{prefix}Cpus"),
        "memory": _sum_attribute(slots, f"{prefix}Memory"),
    }
    for resource, name in options.resources.items():
        offer[resource] = _sum_attribute(slots, f"{prefix}{names[name]}")
    for ad in ours:
        if ad.status == RUNNING:  # a quota counts those, too
            offer["cpu"] += ad.number("RequestCpus")
            offer["memory"] += ad.number("RequestMemory")
            for resource, name in options.resources.items():
                offer[resource] += ad.number(f"Request{names[name]}")
    offer["memory"] *= MEBIBYTE
    offer["pods"] = options.pods or PODS
    return {name: str(amount) for name, amount in offer.items()}


def attribute_name(name: str) -> str:
    """Return the attribute of a resource: ``gpus``, as in request_gpus, is GPUs in ads."""
    return "GPUs" if name.lower() == "gpus" else name


def _is_free(slot: Mapping[str, Any]) -> bool:
    return bool(slot.get("PartitionableSlot")) or slot.get("State") == "Unclaimed"


def _sum_attribute(slots: Iterable[Mapping[str, Any]], attribute: str) -> int:
    values = [slot.get(attribute) for slot in slots]
    return sum(int(value) for value in values if isinstance(value, (int, float)))
