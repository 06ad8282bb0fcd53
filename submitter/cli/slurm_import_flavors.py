"""Flavors of interLink's Slurm plugin, converted to ours.

There a pod got the flavor that its annotation names, or else one for GPUs if it wants some, or else
the default one. Here the first one that fits counts: those for GPUs stand first, then the default
one, which takes everything else, and behind it those that only an annotation chooses.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from submitter.backends.slurm import flags as slurm_flags
from submitter.common.errors import Forbidden

PLAIN = "plain"  # for pods that got no flavor
_FLAVOR_OPTIONS = ("partition", "account", "qos", "reservation", "constraint")
_REFUSED = {
    "CPUDefault": "refused: pods that ask for nothing get build.defaults of the pool",
    "MemoryDefault": "refused: pods that ask for nothing get build.defaults of the pool",
    "UID": "refused: jobs run as the user that the submitter runs as",
}

Flavor = dict[str, Any]


class ImportedFlavors(NamedTuple):
    """Flavors in their order, and the lines of the report."""

    flavors: list[Flavor]
    lines: list[str]


def convert(raw: Mapping[Any, Any], default: str) -> ImportedFlavors:
    """Convert all flavors; ``default`` names the one for pods that no other one is for."""
    names = sorted(map(str, raw), key=lambda name: name != default)
    flavors: list[Flavor] = []
    lines: list[str] = []
    for name in names:
        flavor, messages = _flavor(name, raw.get(name, raw.get(_as_number(name))))
        flavors.append(flavor)
        lines += [f"Flavors.{name}{line}" for line in messages]
    if default not in names:
        flavors.insert(0, {"name": PLAIN})
        lines.append(f"Flavors: none of them was the default one: pods get one called {PLAIN}")
    flavors.sort(key=lambda flavor: -int(flavor.get("min_gpus", 0)))
    return ImportedFlavors(flavors, lines)


def _as_number(name: str) -> Any:
    """Return a name such as 100 as YAML reads it."""
    return int(name) if name.isdigit() else None


def _flavor(name: str, raw: Any) -> tuple[Flavor, list[str]]:
    raw = {} if raw is None else raw
    flavor: Flavor = {"name": name.replace(".", "-")}
    if not isinstance(raw, dict):
        return flavor, [": refused: must be a mapping of its keys"]
    messages = [f".{key}: {reason}" for key, reason in _REFUSED.items() if raw.get(key)]
    try:
        options = slurm_flags.parse(_split_flags(raw.get("SlurmFlags")), "SlurmFlags")
    except (Forbidden, ValueError) as error:
        error_text = str(error).replace("SlurmFlags: ", "", 1)
        return flavor, [*messages, f".SlurmFlags: refused, all of them: {error_text}"]
    if slurm_flags.count_gpus(options):
        flavor["min_gpus"] = 1
        messages.append(
            ".SlurmFlags: a pod's own GPUs are asked for, not the flavor's (min_gpus: 1)"
        )
        options = slurm_flags.drop_gpus(options)
    flags = []
    for option, value in options.items():
        if option in _FLAVOR_OPTIONS and value:
            flavor[option] = value
        else:
            flags.append(f"--{option}" if value is None else f"--{option}={value}")
    return ({**flavor, "flags": flags} if flags else flavor), messages


def _split_flags(flags: Any) -> Iterable[str]:
    lines = [flags] if isinstance(flags, str) else flags or []
    if not isinstance(lines, list):
        raise ValueError("must be a list of flags")
    return [word for line in lines for word in shlex.split(str(line))]
