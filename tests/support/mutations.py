"""Hostile JSON: a message with something in it replaced, dropped or added, again and again."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

JUNK: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**400,
    1.5,
    -0.0,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "x",
    "0",
    "a\nb",
    "\0",
    "\x1b[2J",
    "../../etc/passwd",
    "*",
    ">",
    "a.b",
    "é\u202e\U0001f600",
    "x" * 10_000,
    "waiting",
    "terminated",
    "ended",
    "main",
    [],
    [[]],
    [None],
    [1, 2, 3],
    ["a", "b", "c"],
    ["main", "main", ""],
    {},
    {"": None},
    {"v": 2},
    {"exit_code": []},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a value, itself left out."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in entries:
        yield (*path, key)
        if isinstance(below, (dict, list)):
            yield from places(below, (*path, key))


def spoilt(message: dict[str, Any], random_: random.Random) -> dict[str, Any]:
    """A copy with one to three things that were not sent so."""
    made = copy.deepcopy(message)
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        found = list(places(made))
        if not found:
            break
        *way, last = random_.choice(found)
        holder: Any = made
        for key in way:
            holder = holder[key]
        if random_.random() < 0.2:
            del holder[last]
        elif random_.random() < 0.2 and isinstance(holder, list):
            holder.append(copy.deepcopy(random_.choice(JUNK)))
        else:
            holder[last] = copy.deepcopy(random_.choice(JUNK))
    return made


def mutants(message: dict[str, Any], count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """So many spoilt copies; the same ones every time."""
    random_ = random.Random(seed)
    plain = json.loads(json.dumps(message))
    return (spoilt(plain, random_) for _ in range(count))
