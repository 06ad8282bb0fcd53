"""The vocabulary of our settings dataclasses: what the type of a field says about its values.

A dataclass is the only list of its keys: the annotation of a field says which values it takes, its
metadata whether it must be given, the text under it what it means. Loader, sample and
documentation follow from them (``settings_schema.py``, ``settings_keys.py``).
"""

from __future__ import annotations

import enum
from typing import Annotated, NamedTuple

REQUIRED = {"required": True}  # of a field that a file has to give, whatever default Python needs
CLAIM_VARIABLES = ("namespace", "claim", "pod", "uid")


class Kind(enum.Enum):
    """What a text must be; the words are those of the documentation."""

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
    """A text that must be one of these."""

    values: tuple[str, ...]


class Whole(NamedTuple):
    """A whole number that must not be smaller than this."""

    minimum: int


def elsewhere(words: str) -> dict[str, object]:
    """The metadata of a part whose keys another document explains; these words say where."""
    return {"elsewhere": words}


Path = Annotated[str, Kind.PATH]
PathOrEmpty = Annotated[str, Kind.PATH_OR_EMPTY]
Bash = Annotated[str, Kind.BASH]
Word = Annotated[str, Kind.WORD]
Quantity = Annotated[str, Kind.QUANTITY]
Count = Annotated[int, Whole(1)]
CountOrZero = Annotated[int, Whole(0)]
