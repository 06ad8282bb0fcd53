"""What can go wrong in the translation, as one tree.

    InterlinkNatsError
    ├── PodRejected      a pod asks what cannot be given, or its request is malformed
    ├── ConfigError      a configuration file is wrong
    └── WireError        a message between our programs is not what it should be

Every message is one line that names the field and what is wrong with it: it is read in
``kubectl describe`` and in an admin's terminal.
"""

from __future__ import annotations


def one_line(text: str, limit: int = 400) -> str:
    """Fold white space and control characters so that any text fits on one line."""
    folded = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return folded if len(folded) <= limit else folded[: limit - 3] + "..."


class InterlinkNatsError(Exception):
    """The root of every error that this project raises on purpose."""


class Located(InterlinkNatsError):
    """An error at a named place: ``<where>: <what>``."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where = where
        self.what = what

    def __str__(self) -> str:
        where = one_line(self.where, 300)  # a file and the key in it
        return f"{where}: {one_line(self.what)}" if where else one_line(self.what)


class PodRejected(Located):
    """The pod cannot run here: its author has to change it, or the site its configuration."""


class ConfigError(Located):
    """A configuration file is wrong; ``where`` names the file and the key."""


class WireError(Located):
    """A message or a subject that none of our programs can have sent; ``where`` names the field."""
