"""An operator, an account and a user by JWT, as nsc makes them: enough of it for a test server."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any, NamedTuple

import nkeys

PREFIX_OPERATOR, PREFIX_ACCOUNT, PREFIX_USER = 14 << 3, 0, 20 << 3


class Identity(NamedTuple):
    """What a server and its one user need."""

    server: dict[str, Any]  # for the server's configuration
    credentials: str  # a .creds file


def _pair(prefix: int) -> tuple[Any, str]:
    seed = nkeys.encode_seed(os.urandom(32), prefix)
    return nkeys.from_seed(bytearray(seed)), seed.decode()


def _part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _jwt(signer: Any, subject: str, name: str, nats: dict[str, Any]) -> str:
    claims: dict[str, Any] = {"iat": 1_700_000_000, "iss": signer.public_key.decode()}
    claims.update(name=name, sub=subject, nats={"version": 2, **nats})
    claims["jti"] = base64.b32encode(hashlib.sha256(json.dumps(claims).encode()).digest()).decode()
    body = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(claims)}"
    return f"{body}.{_part(signer.sign(body.encode()))}"


def identity() -> Identity:
    """A new one."""
    operator, _ = _pair(PREFIX_OPERATOR)
    account, _ = _pair(PREFIX_ACCOUNT)
    user, seed = _pair(PREFIX_USER)
    names = [pair.public_key.decode() for pair in (operator, account, user)]
    limits = {"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1}
    limits.update(exports=-1, wildcards=True)
    by_operator = _jwt(operator, names[0], "test", {"type": "operator"})
    by_account = _jwt(operator, names[1], "test", {"type": "account", "limits": limits})
    unlimited = {"subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}}
    by_user = _jwt(account, names[2], "site", {"type": "user", **unlimited})
    server = {
        "operator": by_operator,
        "resolver": "MEMORY",
        "resolver_preload": {names[1]: by_account},
    }
    credentials = (
        f"-----BEGIN NATS USER JWT-----\n{by_user}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    return Identity(server, credentials)
