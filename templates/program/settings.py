"""Settings that all our programs have: the connection to NATS, and the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from templates.nats.options import LinkSettings
from templates.nats.subjects import INBOX, is_inbox
from templates.program.log_format import FORMATS, PLAIN
from templates.settings.types import REQUIRED, Choice, Kind, PathOrEmpty, Word

CREDENTIAL_FILES = ("password_file", "token_file", "nkey_file", "credentials_file")


@dataclass(frozen=True)
class Nats:
    """Servers and credentials of NATS; every secret is in a file of its own."""

    servers: tuple[Annotated[str, Kind.SERVER], ...] = field(default=(), metadata=REQUIRED)
    """URLs to try in any order: wss://, ws://, tls:// or nats://, without credentials."""
    root: Annotated[str, Kind.SUBJECT] = "interlink"
    """What all subjects begin with; the same at all sites and in the cluster."""
    inbox_prefix: Annotated[str, Kind.SUBJECT] = "_INBOX"
    """Where answers arrive: `_INBOX`, or `_INBOX_...` below which the NATS user may subscribe."""
    user: Word = ""
    """User name; its password is in password_file."""
    password_file: PathOrEmpty = ""
    """File with the password."""
    token_file: PathOrEmpty = ""
    """File with a token, instead of user and password."""
    nkey_file: PathOrEmpty = ""
    """File with an NKey seed, instead of user and password."""
    credentials_file: PathOrEmpty = ""
    """File with a user JWT and its seed (.creds), instead of user and password."""
    ca_file: PathOrEmpty = ""
    """Certificates of the CAs to trust; empty: those of the system."""


@dataclass(frozen=True)
class Logging:
    """Log on standard error."""

    level: Annotated[str, Choice(("debug", "info", "warning", "error"))] = "info"
    """The least important messages to show."""
    format: Annotated[str, Choice(FORMATS)] = PLAIN
    """Lines for people, or JSON."""


def link_settings(nats: Nats, name: str) -> LinkSettings:
    """Return the options of the connection; ``name`` is its name in the server's log."""
    return LinkSettings(
        servers=nats.servers,
        name=name,
        inbox_prefix=nats.inbox_prefix,
        user=nats.user,
        password_file=nats.password_file,
        token_file=nats.token_file,
        nkey_file=nats.nkey_file,
        credentials_file=nats.credentials_file,
        ca_file=nats.ca_file,
    )


def find_nats_errors(nats: Nats) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) of values that contradict each other."""
    if not nats.servers:
        yield "nats.servers", "must hold at least one URL"
    if not is_inbox(f"{nats.inbox_prefix}.x"):
        yield "nats.inbox_prefix", f"must be {INBOX}, or begin with {INBOX}_"
    given = [key for key in CREDENTIAL_FILES if getattr(nats, key)]
    if len(given) > 1:
        yield f"nats.{given[1]}", f"must not be given together with {given[0]}"
    if nats.user and not nats.password_file:
        yield "nats.user", "needs a password_file"
    if nats.password_file and not nats.user:
        yield "nats.password_file", "needs a user"
