"""The files of ``nats-site``: who may use the NATS server, and what the server reads of it.

    <dir>/nats-server.conf      the server's own file, written once and then its admin's
    <dir>/accounts.conf         all accounts; included by the former, written anew at every change
    <dir>/accounts/<name>.conf  one account: cluster, or a site
    <dir>/credentials/<name>.nkey    the secret key of a user, to be taken to its site
    <dir>/nats-site.json        all users: the other files are made from it

Users authenticate with NKeys: the server's files hold public keys only, so no secret of a site is
ever where the server's configuration is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import nkeys

from templates.common.errors import ConfigError
from templates.nats import accounts, permissions
from templates.nats.accounts import CLUSTER, CONNECTIONS
from templates.nats.subjects import ROLES

REGISTER = "nats-site.json"
SERVER_CONF = "nats-server.conf"

# What a site is at the server.
OPEN = "open"  # it has an account, and speaks through it
CLOSED = "closed"  # it has an account, and nobody may use it
GUEST = "guest"  # its user is one of the cluster's account, as before there were others

SERVER = """\
# The NATS server through which the cluster and its sites meet. Written once by nats-site: change
# what you like. Start it with: nats-server --config {conf}

# The only door to the outside: WebSockets with TLS. Sites and the cluster connect to it.
websocket {{
  listen: "{host}:{port}"
  tls {{
    cert_file: "{cert}"
    key_file: "{key}"
  }}
}}

# From this machine only: plain connections, and the figures that nats-site watch reads.
listen: "{listen}"
http: "{monitor}"

# Our programs split larger messages themselves. max_pending is what may wait for a slow reader
# before it is cut off: times max_connections of a site, it is what one site's unread messages cost.
{limits}
authorization {{ timeout: {login_s} }}

# For sites that share tokens (nats-site add --bucket); counts from the next start:
#jetstream {{ store_dir: "/var/lib/nats", max_mem: 0, max_file: 1GB }}

# Of several servers each has a name, and routes to all others. One connection between two of them
# (pool_size): with more, a message may overtake the subscription that awaits it.
#server_name: nats-1
#cluster {{ name: interlink, listen: "0.0.0.0:6222", routes: ["nats://..."], pool_size: -1 }}

# Who may connect, and what for; written by nats-site.
include "accounts.conf"
"""
BEFORE = "users.conf"  # what nats-server.conf includes if it was written for a single account
HEAD = "# Written by nats-site at every change.\n"


class User(NamedTuple):
    """User of the server; without pools it is one of ``subjects.ROLES``."""

    public_key: str
    pools: tuple[str, ...] = ()
    bucket: str = ""  # where its submitters keep what they share, if they may
    state: str = GUEST
    connections: int = CONNECTIONS
    bucket_key: str = ""  # of the user that makes the bucket


class Register(NamedTuple):
    """All users, and the settings that they share."""

    root: str
    url: str
    users: dict[str, User]

    @property
    def sites(self) -> dict[str, User]:
        """Users with pools."""
        return {name: user for name, user in self.users.items() if user.pools}


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let no other command change the files meanwhile; wait for one that does."""
    if not folder.is_dir():
        yield  # to be told so by ``load``
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def load(folder: Path) -> Register:
    """Return what a directory holds; an older version's sites are guests."""
    path = folder / REGISTER
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        users = {n: User(u[0], tuple(u[1]), *u[2:]) for n, u in raw["users"].items()}
        return Register(raw["root"], raw["url"], users)
    except FileNotFoundError:
        raise ConfigError(str(folder), "is not set up: begin with nats-site init") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ConfigError(str(path), "is not what nats-site has written") from None


def save(folder: Path, register: Register) -> None:
    """Write every file anew; the register last, so that whatever breaks can be repeated."""
    (folder / "accounts").mkdir(exist_ok=True)
    made = {CLUSTER: _cluster(register)}
    made.update({name: _site(register.root, name, user) for name, user in register.sites.items()})
    for name, account in made.items():
        content = json.dumps({name: account}, indent=1)[2:-2]  # in the file of all: a key of theirs
        write(folder / "accounts" / f"{name}.conf", f"{content}\n")
    includes = "".join(f'  include "accounts/{name}.conf"\n' for name in made)
    write(folder / "accounts.conf", f"{HEAD}accounts {{\n{includes}}}\n")
    if (folder / BEFORE).exists():
        timeout = f"authorization {{ timeout: {accounts.LOGIN_S} }}\n"
        write(folder / BEFORE, f'{HEAD}{timeout}include "accounts.conf"\n')
        shutil.rmtree(folder / "users", ignore_errors=True)
    write(folder / REGISTER, json.dumps(register._asdict(), indent=1) + "\n")
    for path in (folder / "accounts").glob("*.conf"):
        if path.stem not in made:
            path.unlink()


def write_server(path: Path, values: Mapping[str, Any]) -> None:
    """Write the server's own file."""
    limits = "\n".join(f"{key}: {_shown(value)}" for key, value in accounts.SERVER_LIMITS.items())
    write(path, SERVER.format(conf=path, limits=limits, login_s=accounts.LOGIN_S, **values))


def new_key(folder: Path, name: str) -> str:
    """Make a key, keep its secret half in a file for its owner, and return the public half."""
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    pair = nkeys.from_seed(bytearray(seed))
    public_key: str = pair.public_key.decode()
    (folder / "credentials").mkdir(mode=0o700, exist_ok=True)
    write(key_file(folder, name), f"{seed.decode()}\n", 0o600)
    return public_key


def key_file(folder: Path, name: str) -> Path:
    """Return the file with a user's secret key."""
    return folder / "credentials" / f"{name}.nkey"


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file in one step, so that it is never seen half written or with wider rights."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _cluster(register: Register) -> accounts.Account:
    root, sites = register.root, register.sites
    guests = [name for name, user in sites.items() if user.state == GUEST]
    may = {role: permissions.role_permissions(root, role, guests) for role in ROLES}
    may.update({g: permissions.guest_permissions(root, g, sites[g].pools) for g in guests})
    users = [accounts.user_entry(register.users[name].public_key, may[name]) for name in may]
    pools = {name: user.pools for name, user in sites.items() if user.state == OPEN}
    return accounts.cluster_account(root, pools, users)


def _site(root: str, site: str, user: User) -> accounts.Account:
    bounds: dict[str, Any] = {"connections": user.connections, "has_bucket": bool(user.bucket)}
    if user.state != OPEN:
        return accounts.closed_account(**bounds)
    may = permissions.site_permissions(root, site, user.pools, user.bucket)
    users = [accounts.user_entry(user.public_key, may)]
    if user.bucket:
        own = permissions.bucket_maker_permissions(user.bucket)
        users.append(accounts.user_entry(user.bucket_key, own))
    return accounts.site_account(root, user.pools, users, **bounds)


def _shown(value: object) -> str:
    """Return a value as the server reads it: sizes without quotes, seconds with them."""
    return f'"{value}"' if str(value).endswith("s") else str(value)
