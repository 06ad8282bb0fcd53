"""Errors of the translation and of messages, as one tree.

    InterlinkNatsError
    ├── PodRejected      a pod asks what cannot be given, or its request is malformed
    ├── ConfigError      a configuration file is wrong
    └── WireError        a message between our programs is not what it should be

Every message is one line that names the field and what is wrong with it: it is read in
``kubectl describe`` and in an admin's terminal.
"""

from __future__ import annotations


def one_line(text: str, limit: int = 400) -> str:
    """Return the text on one line: white space and control characters become spaces."""
    text = text[: 8 * limit]  # what follows would be cut off, and can be as long as a request
    folded = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return folded if len(folded) <= limit else folded[: limit - 3] + "..."


class InterlinkNatsError(Exception):
    """Root of every error that this project raises on purpose."""


class Located(InterlinkNatsError):
    """Error at a named place: ``<field>: <reason>``."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        field = one_line(self.field, 300)  # a file and the key in it
        return f"{field}: {one_line(self.reason)}" if field else one_line(self.reason)


class PodRejected(Located):
    """Pod that cannot run here: its author has to change it, or the site its configuration."""


class ConfigError(Located):
    """Wrong configuration file; ``field`` names the file and the key."""


class WireError(Located):
    """Message or subject that none of our programs can have sent."""
