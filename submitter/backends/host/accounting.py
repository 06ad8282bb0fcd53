"""What a machine has room for, and what jobs take of it: in whole numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from templates.common.quantity import byte_count, count, cpu_milli
from templates.job.model import Job

UNITS = {"cpu": ("cpus", 1000), "memory": ("GiB of memory", 2**30)}


class Taken(NamedTuple):
    """What a job takes of the machine."""

    amounts: Mapping[str, int]
    gpus: Sequence[str]
    machine: str = ""  # its name


def parse_taken(raw: Optional[bytes]) -> Optional[Taken]:
    """What was written of a job; None where it cannot be read."""
    try:
        return Taken(**json.loads(raw or b""))
    except (ValueError, TypeError):
        return None


def amounts(offer: Mapping[str, str]) -> dict[str, int]:
    """As whole numbers: cpus in thousandths, memory in bytes."""
    units = {"cpu": cpu_milli, "memory": byte_count}
    return {name: units.get(name, count)(text, name) for name, text in offer.items()}


def total(many: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """All of them together."""
    sums: dict[str, int] = {}
    for one in many:
        for name, amount in one.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def texts(numbers: Mapping[str, int]) -> dict[str, str]:
    """Whole numbers as quantities again."""
    return {name: f"{n}m" if name == "cpu" else str(n) for name, n in numbers.items()}


def wanted(job: Job) -> dict[str, int]:
    """What a job asks for, in the same units."""
    found = {"cpu": job.cpu_milli, "memory": job.memory_bytes, "pods": 1}
    return {**found, **job.gpus}


def say(name: str, amount: int) -> str:
    """An amount in words."""
    unit, size = UNITS.get(name, (name, 1))
    return f"{amount / size:.4g} {unit}"
