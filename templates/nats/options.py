"""Settings of a connection to NATS, and the options of nats-py that follow from them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, NamedTuple

from templates.common.errors import ConfigError, one_line

HIDDEN = "***"


class LinkSettings(NamedTuple):
    """The servers, and the credentials; secrets are named by their files.

    ``password`` is for a caller that has it in no file.
    """

    servers: tuple[str, ...]  # wss://, ws://, tls:// or nats:// URLs, without credentials in them
    name: str = "interlink-nats"
    inbox_prefix: str = "_INBOX"
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    nkey_file: str = ""  # an NKey seed
    credentials_file: str = ""  # a user JWT with its seed, as nsc writes it
    ca_file: str = ""  # empty: the system's own
    password: str = ""  # of the user, where there is no password_file

    def __repr__(self) -> str:
        """Return the representation without the password: it ends up in logs."""
        shown = self._asdict()
        shown["password"] = HIDDEN if self.password else ""
        return f"LinkSettings({', '.join(f'{key}={value!r}' for key, value in shown.items())})"


def connect_options(settings: LinkSettings) -> dict[str, Any]:
    """Return the options for nats-py; the files are read now, so that new credentials count."""
    options: dict[str, Any] = {
        "servers": list(settings.servers),
        "name": settings.name,
        "inbox_prefix": settings.inbox_prefix,
    }
    if settings.user:
        options["user"] = settings.user
        file = settings.password_file
        options["password"] = read_secret("password_file", file) if file else settings.password
    if settings.token_file:
        options["token"] = read_secret("token_file", settings.token_file)
    if settings.nkey_file:
        options["nkeys_seed_str"] = read_secret("nkey_file", settings.nkey_file)
    if settings.credentials_file:
        # nats-py reads it itself, but has no good error if the file is missing.
        read_secret("credentials_file", settings.credentials_file)
        options["user_credentials"] = settings.credentials_file
    if any(server.startswith(("wss:", "tls:")) for server in settings.servers):
        options["tls"] = _tls(settings.ca_file)
    return options


def _tls(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("nats.ca_file", f"{ca_file}: {one_line(str(error))}") from None


def read_secret(key: str, path: str) -> str:
    """Return the one line in a file; an error names the file and never its content."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise ConfigError(f"nats.{key}", f"{path}: {reason}") from None
