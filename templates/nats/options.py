"""Settings of a connection to NATS, and the options of nats-py that follow from them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, NamedTuple

from nats.aio.client import RawCredentials

from templates.common.errors import ConfigError, one_line

HIDDEN = "***"


class LinkSettings(NamedTuple):
    """The servers, and the credentials; secrets are named by their files.

    ``password`` is for a caller that has it in no file; ``secret`` is what a file has held that
    cannot be read any more.
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
    secret: str = ""  # of the one file that is named, where it is not to be read

    def __repr__(self) -> str:
        """Return the representation without secrets: it ends up in logs."""
        shown = self._asdict()
        for name in ("password", "secret"):
            shown[name] = HIDDEN if shown[name] else ""
        return f"LinkSettings({', '.join(f'{key}={value!r}' for key, value in shown.items())})"


def connect_options(settings: LinkSettings) -> dict[str, Any]:
    """Return the options for nats-py; files are read now, so that new credentials count."""
    options: dict[str, Any] = {
        "servers": list(settings.servers),
        "name": settings.name,
        "inbox_prefix": settings.inbox_prefix,
    }

    def secret(key: str, path: str) -> str:
        return settings.secret or read_secret(key, path)

    if settings.user:
        options["user"] = settings.user
        file = settings.password_file
        options["password"] = secret("password_file", file) if file else settings.password
    if settings.token_file:
        options["token"] = secret("token_file", settings.token_file)
    if settings.nkey_file:
        options["nkeys_seed_str"] = secret("nkey_file", settings.nkey_file)
    if settings.credentials_file:
        found = secret("credentials_file", settings.credentials_file)
        options["user_credentials"] = RawCredentials(found)
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
