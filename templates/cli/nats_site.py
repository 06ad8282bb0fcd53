"""``nats-site``: the users of the NATS server, one for each site, each in an account of its own.

It is for the admin of that server, and belongs to none of our programs. It writes files, which
``nats_files.py`` has, and says how to tell the server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional

from templates.cli import nats_files, nats_watch
from templates.cli.nats_files import CLOSED, GUEST, OPEN, SERVER_CONF, Register, User
from templates.cli.nats_watch import Rates, Watch
from templates.common.errors import ConfigError, InterlinkNatsError, one_line
from templates.common.names import check_root, check_token
from templates.nats import permissions
from templates.nats.accounts import CLUSTER, CONNECTIONS, SERVER_LIMITS
from templates.nats.connection import Link
from templates.nats.options import LinkSettings
from templates.nats.subjects import DEFAULT_ROOT, ROLES

LOCAL_URL = "nats://127.0.0.1:4222"
MONITOR_URL = "http://127.0.0.1:8222"
RELOAD = "nats-server --signal reload"
CONNECT_S = 10.0
RECORDS = {"max_msgs_per_subject": 1, "max_msg_size": 64 * 1024, "max_bytes": 1024 * 1024}
"""What a bucket is: the last value of each key."""
WAITS = {CLOSED: "is not let in yet", GUEST: "still uses the cluster's account"}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit code."""
    arguments = _parser().parse_args(argv)
    act: Callable[[argparse.Namespace], str] = arguments.act
    try:
        changes = nats_files.locked(arguments.dir) if act in CHANGES else contextlib.nullcontext()
        with changes:
            done = act(arguments)
        sys.stdout.write(done)
    except InterlinkNatsError as error:
        sys.stderr.write(f"nats-site: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        sys.stderr.write(f"nats-site: {error.filename}: {error.strerror}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nats-site",
        description="The users of the NATS server: one for each site, in an account of its own.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, act: Callable[[argparse.Namespace], str], text: str) -> Any:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(act=act)
        if act is not init_server:
            made.add_argument(
                "--dir", metavar="DIR", type=Path, default=Path(), help="default: here"
            )
        return made

    _add_init(command("init", init_server, "make the files of a server, and the cluster's users"))
    add = command("add", add_site, "add a site, or change the pools of one")
    add.add_argument("site", metavar="SITE")
    add.add_argument("pools", metavar="POOL", nargs="+")
    add.add_argument("--new-key", action="store_true", help="replace the key that it has")
    text = f"how many it may have, over all its submitters (default: {CONNECTIONS})"
    add.add_argument("--connections", metavar="N", type=int, help=text)
    text = "let its submitters share their tokens in a bucket of its own"
    add.add_argument("--bucket", action="store_true", help=text)
    for name, act, text in (
        ("open", open_sites, "let sites in: announced, closed, or not in accounts of their own"),
        ("close", close_sites, "keep sites out, until they are opened again"),
    ):
        command(name, act, text).add_argument("sites", metavar="SITE", nargs="+")
    remove = command("remove", remove_site, "take a site's access away")
    remove.add_argument("site", metavar="SITE")
    bucket = command("bucket", make_bucket, "make the bucket of a site, at the server that runs")
    bucket.add_argument("site", metavar="SITE")
    bucket.add_argument("--server", metavar="URL", default=LOCAL_URL, help="default: %(default)s")
    bucket.add_argument("--ca-file", metavar="FILE", default="", help="who vouches for it")
    command("list", list_users, "show all users")
    command("check", check_files, "have nats-server judge the files, if it is here")
    _add_watch(command("watch", watch_server, "name sites that ask too much of the server"))
    command("write", write_anew, "write all files anew, as after an update")
    return parser


def _add_init(init: argparse.ArgumentParser) -> None:
    init.add_argument("dir", metavar="DIR", type=Path)
    init.add_argument("--url", default="wss://nats.example.org:443", help="how sites will reach it")
    init.add_argument("--root", default=DEFAULT_ROOT, help="what all subjects begin with")
    init.add_argument("--cert", default="/etc/nats/tls.crt", help="the server's certificate")
    init.add_argument("--key", default="/etc/nats/tls.key", help="its key")
    init.add_argument("--host", default="0.0.0.0", help="where its WebSockets listen")  # noqa: S104
    init.add_argument("--port", type=int, default=443, help="their port")
    text = "HOST:PORT of plain connections (default: %(default)s)"
    init.add_argument("--listen", default="127.0.0.1:4222", help=text)
    text = "HOST:PORT of its figures, which need no password (default: %(default)s)"
    init.add_argument("--monitor", default="127.0.0.1:8222", help=text)


def _add_watch(watch: argparse.ArgumentParser) -> None:
    text = "the server's figures (default: %(default)s)"
    watch.add_argument("--monitor", metavar="URL", default=MONITOR_URL, help=text)
    text = "how often it looks (default: %(default)s)"
    watch.add_argument("--every", metavar="SECONDS", type=float, default=10.0, help=text)
    for name, limit in Rates()._asdict().items():
        text = f"{name.replace('_', ' ')} that a site may have in a second (default: %(default)g)"
        option = f"--{name.replace('_', '-')}"
        watch.add_argument(option, metavar="N", type=float, default=limit, help=text)
    text = "close the account of a site that goes on, until nats-site open"
    watch.add_argument("--close", action="store_true", help=text)
    text = "how often in a row before it is closed (default: %(default)s)"
    watch.add_argument("--times", metavar="N", type=int, default=3, help=text)
    text = "what has the server read its files anew (default: %(default)s)"
    watch.add_argument("--reload", metavar="COMMAND", default=RELOAD, help=text)


# --- the commands -------------------------------------------------------------------------------


def init_server(arguments: argparse.Namespace) -> str:
    """Make the files of a new server."""
    folder: Path = arguments.dir
    if (folder / nats_files.REGISTER).exists():
        raise ConfigError(str(folder), "is set up already: add a site, or take another directory")
    root = check_root("--root", arguments.root)
    register = Register(root, arguments.url, {})
    folder.mkdir(parents=True, exist_ok=True)
    conf = folder / SERVER_CONF
    if not conf.exists():
        nats_files.write_server(conf, vars(arguments))
    for role in ROLES:
        register.users[role] = User(nats_files.new_key(folder, role))
    nats_files.save(folder, register)
    return (
        f"{conf} is the server's configuration: look through it, then start the server.\n"
        f"{folder}/credentials holds the keys of {', '.join(ROLES)}: "
        "take them to the cluster.\n"
        f"Add the first site: nats-site add SITE POOL --dir {folder}\n"
    )


def add_site(arguments: argparse.Namespace) -> str:
    """Give a site access to its pools, and to nothing else."""
    folder, site = arguments.dir, _site_name(arguments.site)
    if arguments.connections is not None and arguments.connections < 1:
        raise ConfigError("--connections", "must be at least 1")
    register = nats_files.load(folder)
    pools = tuple(dict.fromkeys(check_token("pool", pool, ConfigError) for pool in arguments.pools))
    for name, user in register.users.items():
        shared = sorted(set(pools) & set(user.pools))
        if name != site and shared:
            raise ConfigError(f"pool {shared[0]}", f"belongs to {name}")
    user = register.users.get(site, User("", state=CLOSED))
    register.users[site] = _with_keys(
        folder,
        site,
        user._replace(
            public_key="" if arguments.new_key else user.public_key,
            pools=pools,
            bucket=permissions.bucket_of(site) if arguments.bucket else "",
            connections=arguments.connections or user.connections,
        ),
    )
    nats_files.save(folder, register)
    return _next_steps(folder, register, site)


def open_sites(arguments: argparse.Namespace) -> str:
    """Let sites in, each through its account."""
    return _change_state(arguments, OPEN, "open")


def close_sites(arguments: argparse.Namespace) -> str:
    """Keep sites out; their connections end when the server reloads."""
    return _change_state(arguments, CLOSED, "closed")


def remove_site(arguments: argparse.Namespace) -> str:
    """Take a site's access away; its connections end when the server reloads."""
    folder, site = arguments.dir, arguments.site
    register = nats_files.load(folder)
    _known(register, site)
    del register.users[site]
    nats_files.save(folder, register)
    for path in (folder / "credentials").glob(f"{site}.*nkey"):
        path.unlink()
    return f"{site} is removed.\n{_reload(folder)}"


def list_users(arguments: argparse.Namespace) -> str:
    """Return a line for each user: name, public key, what it is, pools."""
    users = nats_files.load(arguments.dir).users
    width = max(map(len, users))
    rows = [
        f"{name:<{width}}  {user.public_key}  {user.state if user.pools else CLUSTER:<7}  "
        f"{' '.join(user.pools) or '-'}"
        for name, user in users.items()
    ]
    return "".join(f"{row.rstrip()}\n" for row in rows)


def write_anew(arguments: argparse.Namespace) -> str:
    """Write all files anew, as this version of nats-site has them."""
    folder = arguments.dir
    register = nats_files.load(folder)
    nats_files.save(folder, register)
    guests = [name for name, user in register.sites.items() if user.state == GUEST]
    move = f"then give each an account of its own: nats-site open {' '.join(guests)}\n"
    return f"all files are written.\n{_reload(folder)}{move if guests else ''}"


def check_files(arguments: argparse.Namespace) -> str:
    """Return what nats-server says of the files, and which limits its admin has left out."""
    conf = arguments.dir / SERVER_CONF
    text = conf.read_text(encoding="utf-8")
    wanted = {key: f"{key}: {value}" for key, value in SERVER_LIMITS.items()}
    if re.search(r"^\s*cluster\b", text, re.M):
        wanted["pool_size"] = "pool_size: -1, in cluster"
    missing = [
        line for key, line in wanted.items() if not re.search(rf"^[^#]*\b{key}\b", text, re.M)
    ]
    notes = "".join(f"note: {conf} has no {line}\n" for line in missing)
    program = shutil.which("nats-server") or shutil.which(
        "nats-server", path=str(Path(sys.executable).parent)
    )
    if program is None:
        return f"{notes}nats-server is not here: check where it is, by nats-server -t -c {conf}\n"
    command = [program, "-t", "-c", str(conf)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError("nats-server", one_line(done.stderr or done.stdout, 500))
    return f"{notes}ok: nats-server takes {conf}\n"


def watch_server(arguments: argparse.Namespace) -> str:
    """Watch until somebody has had enough of it."""
    nats_watch.run(
        Watch(
            arguments.dir,
            arguments.monitor.rstrip("/"),
            Rates(*(getattr(arguments, name) for name in Rates._fields)),
            arguments.every,
            arguments.times,
            arguments.reload if arguments.close else "",
        )
    )
    return ""


def make_bucket(arguments: argparse.Namespace) -> str:
    """Make a site's bucket, as the user that may; a site's own users may not."""
    register = nats_files.load(arguments.dir)
    user = _known(register, arguments.site)
    if not user.bucket or user.state != OPEN:
        raise ConfigError(arguments.site, "has no bucket: nats-site add SITE POOL... --bucket")
    settings = LinkSettings(
        servers=(arguments.server,),
        inbox_prefix=permissions.inbox_of(permissions.BUCKET_MAKER),
        nkey_file=str(nats_files.key_file(arguments.dir, f"{arguments.site}.bucket")),
        ca_file=arguments.ca_file,
    )
    answer = asyncio.run(_create_stream(settings, user.bucket))
    error = answer.get("error")
    if error is not None:
        raise ConfigError(user.bucket, one_line(str(error.get("description", error))))
    return f"the bucket {user.bucket} is made.\n"


async def _create_stream(settings: LinkSettings, bucket: str) -> Any:
    stream = f"KV_{bucket}"
    config = {
        "name": stream,
        "subjects": [permissions.key_of_bucket(bucket, ">")],
        "storage": "file",
        "discard": "new",
        "allow_direct": True,  # or its submitters cannot read it
        "deny_delete": True,
        **RECORDS,
    }
    link = Link(settings, DEFAULT_ROOT)
    await link.start()
    try:
        if not await link.connected(CONNECT_S):
            raise ConfigError(settings.servers[0], link.error)
        where = f"$JS.API.STREAM.CREATE.{stream}"
        return json.loads(await link.request_raw(where, json.dumps(config).encode(), CONNECT_S))
    finally:
        await link.stop()


CHANGES = (init_server, add_site, open_sites, close_sites, remove_site, write_anew)


# --- parts of them --------------------------------------------------------------------------------


def _site_name(name: str) -> str:
    if name in (*ROLES, CLUSTER):
        raise ConfigError(name, "is a name in the cluster: call the site another name")
    return check_token("site", name, ConfigError)


def _known(register: Register, site: str) -> User:
    if site not in register.sites:
        raise ConfigError(site, "is no site here")
    return register.users[site]


def _with_keys(folder: Path, site: str, user: User) -> User:
    """Return the user with the keys that it lacks."""
    if not user.public_key:
        user = user._replace(public_key=nats_files.new_key(folder, site))
    if user.bucket and not user.bucket_key:
        user = user._replace(bucket_key=nats_files.new_key(folder, f"{site}.bucket"))
    return user


def _change_state(arguments: argparse.Namespace, state: str, word: str) -> str:
    folder = arguments.dir
    register = nats_files.load(folder)
    for site in arguments.sites:
        user = _with_keys(folder, site, _known(register, site))
        register.users[site] = user._replace(state=state)
    nats_files.save(folder, register)
    return f"{', '.join(arguments.sites)}: {word}.\n{_reload(folder)}"


def _next_steps(folder: Path, register: Register, site: str) -> str:
    user = register.users[site]
    pools = [
        f"  - name: {pool}\n    directory: /shared/interlink/{pool}  # yours to choose, as is:\n"
        "    build: {runtime: {name: apptainer}}\n"
        for pool in user.pools
    ]
    again = ""
    if user.state != OPEN:
        again = (
            f"{site} {WAITS[user.state]}. When the server has reloaded (of several, all), and only "
            f"then: nats-site open {site} --dir {folder}\n"
        )
    return (
        f"{_reload(folder)}{again}"
        f"Take {nats_files.key_file(folder, site)} to {site}, by a way that nobody else can read, "
        "as\n/etc/interlink/nats.nkey, of mode 0600 and root's. Its submitter.yaml:\n\n"
        "nats:\n"
        f"  servers: [{json.dumps(register.url)}]\n"
        f"  root: {register.root}\n"
        f"  inbox_prefix: {permissions.inbox_of(site)}\n"
        "  nkey_file: /etc/interlink/nats.nkey\n"
        f"pools:\n{''.join(pools)}"
        f"{_bucket_steps(folder, site, user.bucket)}"
    )


def _bucket_steps(folder: Path, site: str, bucket: str) -> str:
    """Return the next steps for a site that has a bucket."""
    if not bucket:
        return ""
    return (
        "\nThe server needs jetstream in its configuration. When it has reloaded, once:\n"
        f"nats-site bucket {site} --dir {folder}\n"
        f"In its submitter.yaml it is options.tokens.bucket: {bucket}\n"
    )


def _reload(folder: Path) -> str:
    return (
        f"Tell the server (of several, all): {RELOAD}, or kill -HUP its process; "
        f"if you like, before: nats-site check --dir {folder}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
