"""``nats-site``: the users of the NATS server, one for each site, each with the least rights.

It is for the admin of that server, and belongs to none of our programs. Users authenticate with
NKeys: the server's files hold public keys only, so no secret of a site is ever where the server's
configuration is.

    <dir>/nats-server.conf      the server's own file, written once and then its admin's
    <dir>/users.conf            all users; included by the former, written anew at every change
    <dir>/users/<name>.conf     one user, included by users.conf
    <dir>/credentials/<name>.nkey    the secret key of a user, to be taken to its site
    <dir>/nats-site.json        all users: the other files are made from it
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import nkeys

from templates.common.errors import ConfigError, InterlinkNatsError
from templates.common.names import check_root, check_token
from templates.nats import permissions
from templates.nats.subjects import DEFAULT_ROOT, ROLES

REGISTER = "nats-site.json"

SERVER = """\
# The NATS server through which the cluster and its sites meet. Written once by nats-site: change
# what you like. Start it with: nats-server --config {conf}

# The only door to the outside: WebSockets with TLS. Sites and the cluster connect to it.
websocket {{
  listen: "0.0.0.0:{port}"
  tls {{
    cert_file: "{cert}"
    key_file: "{key}"
  }}
}}

# Plain connections from this machine only.
listen: "127.0.0.1:4222"

# Larger messages are split by our programs themselves.
max_payload: 1MB
# How much may wait for a slow reader before it is cut off.
max_pending: 64MB
# A connection that is gone is noticed, whatever stands between.
ping_interval: "20s"
ping_max: 3

# Who may connect, and what for; written by nats-site.
include "users.conf"
"""


class User(NamedTuple):
    """User of the server; without pools it is one of ``subjects.ROLES``."""

    public_key: str
    pools: tuple[str, ...] = ()
    bucket: str = ""  # where its submitters keep what they share, if they may


class Register(NamedTuple):
    """All users, and the settings that they share."""

    root: str
    url: str
    users: dict[str, User]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit code."""
    arguments = _parser().parse_args(argv)
    act: Callable[[argparse.Namespace], str] = arguments.act
    try:
        sys.stdout.write(act(arguments))
    except InterlinkNatsError as error:
        sys.stderr.write(f"nats-site: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"nats-site: {error.filename}: {error.strerror}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nats-site", description="The users of the NATS server: one for each site."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, act: Callable[[argparse.Namespace], str], text: str) -> Any:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(act=act)
        return made

    init = command("init", init_server, "make the files of a server, and the cluster's users")
    init.add_argument("dir", metavar="DIR", type=Path)
    init.add_argument("--url", default="wss://nats.example.org:443", help="how sites will reach it")
    init.add_argument("--root", default=DEFAULT_ROOT, help="what all subjects begin with")
    init.add_argument("--cert", default="/etc/nats/tls.crt", help="the server's certificate")
    init.add_argument("--key", default="/etc/nats/tls.key", help="its key")
    init.add_argument("--port", type=int, default=443, help="the port of its WebSockets")
    add = command("add", add_site, "add a site, or change the pools of one")
    add.add_argument("site", metavar="SITE")
    add.add_argument("pools", metavar="POOL", nargs="+")
    add.add_argument("--new-key", action="store_true", help="replace the key that it has")
    text = "let its submitters share their tokens in a bucket of its own"
    add.add_argument("--bucket", action="store_true", help=text)
    remove = command("remove", remove_site, "take a site's access away")
    remove.add_argument("site", metavar="SITE")
    shown = command("list", list_users, "show all users")
    for made in (add, remove, shown):
        made.add_argument("--dir", metavar="DIR", type=Path, default=Path(), help="default: here")
    return parser


# --- the commands -------------------------------------------------------------------------------


def init_server(arguments: argparse.Namespace) -> str:
    """Make the files of a new server."""
    folder: Path = arguments.dir
    if (folder / REGISTER).exists():
        raise ConfigError(str(folder), "is set up already: add a site, or take another directory")
    register = Register(check_root("--root", arguments.root), arguments.url, {})
    folder.mkdir(parents=True, exist_ok=True)
    conf = folder / "nats-server.conf"
    if not conf.exists():
        values = {"port": arguments.port, "cert": arguments.cert, "key": arguments.key}
        _write(conf, SERVER.format(conf=conf, **values))
    for role in ROLES:
        register.users[role] = User(_new_key(folder, role))
    _save(folder, register)
    return (
        f"{conf} is the server's configuration: look through it, then start the server.\n"
        f"{folder}/credentials holds the keys of {', '.join(ROLES)}: "
        "take them to the cluster.\n"
        f"Add the first site: nats-site add SITE POOL --dir {folder}\n"
    )


def add_site(arguments: argparse.Namespace) -> str:
    """Give a site access to its pools, and to nothing else."""
    folder, site = arguments.dir, _site_name(arguments.site)
    register = _load(folder)
    pools = tuple(dict.fromkeys(check_token("pool", pool, ConfigError) for pool in arguments.pools))
    for name, user in register.users.items():
        shared = sorted(set(pools) & set(user.pools))
        if name != site and shared:
            raise ConfigError(f"pool {shared[0]}", f"belongs to {name}")
    before = register.users.get(site)
    kept = None if before is None or arguments.new_key else before.public_key
    bucket = permissions.bucket_of(site) if arguments.bucket else ""
    register.users[site] = User(kept or _new_key(folder, site), pools, bucket)
    _save(folder, register)
    return _next_steps(folder, register, site)


def remove_site(arguments: argparse.Namespace) -> str:
    """Take a site's access away; its connections end when the server reloads."""
    folder, site = arguments.dir, _site_name(arguments.site)
    register = _load(folder)
    if register.users.pop(site, None) is None:
        raise ConfigError(site, "is no site here")
    _save(folder, register)
    for path in (folder / "users" / f"{site}.conf", folder / "credentials" / f"{site}.nkey"):
        path.unlink(missing_ok=True)
    return f"{site} is removed.\n{_reload(folder)}"


def list_users(arguments: argparse.Namespace) -> str:
    """Return a line for each user: name, public key, pools."""
    users = _load(arguments.dir).users
    width = max(map(len, users))
    rows = [f"{n:<{width}}  {u.public_key}  {' '.join(u.pools) or '-'}" for n, u in users.items()]
    return "".join(f"{row.rstrip()}\n" for row in rows)


def _next_steps(folder: Path, register: Register, site: str) -> str:
    pools = [
        f"  - name: {pool}\n    directory: /shared/interlink/{pool}  # yours to choose\n"
        for pool in register.users[site].pools
    ]
    return (
        f"{_reload(folder)}"
        f"Take {folder}/credentials/{site}.nkey to {site}, by a way that nobody else can read, as\n"
        "/etc/interlink/nats.nkey, readable for the submitter's user only. Its submitter.yaml:\n\n"
        "nats:\n"
        f"  servers: [{json.dumps(register.url)}]\n"
        f"  root: {register.root}\n"
        f"  inbox_prefix: {permissions.inbox_of(site)}\n"
        "  nkey_file: /etc/interlink/nats.nkey\n"
        f"pools:\n{''.join(pools)}"
        f"{_bucket(register.users[site].bucket)}"
    )


def _bucket(name: str) -> str:
    """Return the next steps for a site that has a bucket."""
    if not name:
        return ""
    return (
        "\nMake its bucket, once, as who may do so (the server's configuration needs jetstream):\n"
        f"nats kv add {name} --history=1 --max-value-size=65536 --max-bucket-size=1048576\n"
        f"In its submitter.yaml it is options.tokens.bucket: {name}\n"
    )


def _reload(folder: Path) -> str:
    return (
        "Tell the server: nats-server --signal reload (or kill -HUP its process); before, if you "
        f"like:\nnats-server --config {folder}/nats-server.conf -t\n"
    )


# --- files --------------------------------------------------------------------------------------


def _site_name(name: str) -> str:
    if name in ROLES:
        raise ConfigError(name, "is the name of a user in the cluster: call the site another name")
    return check_token("site", name, ConfigError)


def _load(folder: Path) -> Register:
    path = folder / REGISTER
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        users = {n: User(u[0], tuple(u[1]), *u[2:]) for n, u in raw["users"].items()}
        return Register(raw["root"], raw["url"], users)
    except FileNotFoundError:
        raise ConfigError(str(folder), "is not set up: begin with nats-site init") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ConfigError(str(path), "is not what nats-site has written") from None


def _save(folder: Path, register: Register) -> None:
    """Write every file anew; the register last, so that whatever breaks can be repeated."""
    (folder / "users").mkdir(exist_ok=True)
    for name, user in register.users.items():
        may = (
            permissions.site_permissions(register.root, name, user.pools, user.bucket)
            if user.pools
            else permissions.role_permissions(register.root, name)
        )
        entry = permissions.server_entry(user.public_key, may)
        _write(folder / "users" / f"{name}.conf", f"{_variable(name)} = {entry}\n")
    includes = "".join(f'include "users/{name}.conf"\n' for name in register.users)
    everybody = ", ".join(f"${_variable(name)}" for name in register.users)
    head = "# Written by nats-site at every change.\n"
    rule = f"authorization {{\n  timeout: 5\n  users: [{everybody}]\n}}\n"
    _write(folder / "users.conf", f"{head}{includes}{rule}")
    _write(folder / REGISTER, json.dumps(register._asdict(), indent=1) + "\n")


def _variable(name: str) -> str:
    """Return the server's variable for a user; hexadecimal, because a dash would end it."""
    return f"user_{name.encode().hex()}"


def _new_key(folder: Path, name: str) -> str:
    """Make a key, keep its secret half in a file for its owner, and return the public half."""
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    pair = nkeys.from_seed(bytearray(seed))
    public_key: str = pair.public_key.decode()
    (folder / "credentials").mkdir(mode=0o700, exist_ok=True)
    _write(folder / "credentials" / f"{name}.nkey", f"{seed.decode()}\n", 0o600)
    return public_key


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file in one step, so that it is never seen half written or with wider rights."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


if __name__ == "__main__":
    sys.exit(main())
