"""Types of the fields of settings dataclasses: which values each takes.

A dataclass is the only list of its keys: the annotation of a field says which values it takes, its
metadata whether it must be given, the text under it what it means. Loader, sample and
documentation follow from them (``schema.py``, ``reference.py``).
"""

from __future__ import annotations

import enum
from typing import Annotated, NamedTuple

REQUIRED = {"required": True}  # of a field that a file has to have, whatever default Python needs
CLAIM_VARIABLES = ("namespace", "claim", "pod", "uid")


class Kind(enum.Enum):
    """Kinds of texts; the values are those of the documentation."""

    TEXT = "text"
    BASH = "bash, any number of lines"
    WORD = "text without white space"
    ARGUMENT = "text on one line"
    PATH = "absolute path"
    PATH_OR_EMPTY = "absolute path, or empty"
    PROGRAM = "absolute path without white space"
    PLACE = "absolute path, URI, or empty"
    CLAIM_PATH = "absolute path, may hold $namespace, $claim, $pod, $uid"
    CLAIM = "claim or namespace/claim"
    VARIABLE = "name of a variable"
    VARIABLES = "shell pattern for names of variables"
    CPU = "quantity of cpu"
    BYTES = "quantity of bytes"
    QUANTITY = "quantity"
    TOKEN = "1 to 63 letters, digits, dashes and underscores"
    SUBJECT = "letters, digits, dashes and underscores, between dots"
    SERVER = "wss://, ws://, tls:// or nats:// URL"
    TAINT = "key=value:effect"


class Choice(NamedTuple):
    """Rule: a text that is one of these."""

    values: tuple[str, ...]


class Whole(NamedTuple):
    """Rule: a whole number of at least this."""

    minimum: int


def elsewhere(place: str) -> dict[str, object]:
    """Return the metadata of a section whose keys are explained at another place."""
    return {"elsewhere": place}


Path = Annotated[str, Kind.PATH]
PathOrEmpty = Annotated[str, Kind.PATH_OR_EMPTY]
Bash = Annotated[str, Kind.BASH]
Word = Annotated[str, Kind.WORD]
Quantity = Annotated[str, Kind.QUANTITY]
Count = Annotated[int, Whole(1)]
CountOrZero = Annotated[int, Whole(0)]
