"""The resources of a machine, and those allocated to jobs, in whole numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from submitter.common.guarded_files import load_object
from templates.common.quantity import byte_count, count, cpu_milli
from templates.job.model import Job

UNITS = {"cpu": ("cpus", 1000), "memory": ("GiB of memory", 2**30)}


class Allocation(NamedTuple):
    """The resources that are allocated to a job."""

    amounts: Mapping[str, int]
    gpus: Sequence[str]
    machine: str = ""  # its name


def parse_allocation(raw: Optional[bytes]) -> Optional[Allocation]:
    """Parse the allocation in a file; None if it cannot be read."""
    try:
        found = Allocation(**load_object(raw or b""))
    except (ValueError, TypeError):
        return None
    amounts, gpus = found.amounts, found.gpus
    if type(amounts) is not dict or {*map(type, amounts.values())} - {int}:
        return None
    if type(gpus) is not list or {*map(type, gpus)} - {str} or type(found.machine) is not str:
        return None
    return found


def parse_amounts(offer: Mapping[str, str]) -> dict[str, int]:
    """Return quantities as whole numbers: cpus in thousandths, memory in bytes."""
    units = {"cpu": cpu_milli, "memory": byte_count}
    return {name: units.get(name, count)(text, name) for name, text in offer.items()}


def sum_amounts(many: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up amounts by name."""
    sums: dict[str, int] = {}
    for one in many:
        for name, amount in one.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def format_amounts(numbers: Mapping[str, int]) -> dict[str, str]:
    """Return whole numbers as quantities again."""
    return {name: f"{n}m" if name == "cpu" else str(n) for name, n in numbers.items()}


def requested_amounts(job: Job) -> dict[str, int]:
    """Return the resources that a job requests, in the same units."""
    found = {"cpu": job.cpu_milli, "memory": job.memory_bytes, "pods": 1}
    return {**found, **job.gpus}


def describe(name: str, amount: int) -> str:
    """Return an amount with its unit, for messages."""
    unit, size = UNITS.get(name, (name, 1))
    return f"{amount / size:.4g} {unit}"
