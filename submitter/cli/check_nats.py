"""Whether NATS can be reached and lets this site do all that it has to; and if not, where it ends.

Each step is tried by itself, because "cannot connect" helps nobody: the name, the port, the
certificate, the credentials, and every subject of every pool. Nothing that is published here means
anything to those who hear it, and what is subscribed to is heard by nobody else for a moment only.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable
from typing import Callable
from urllib.parse import urlsplit

from submitter.cli.report import Report
from submitter.config.settings import PROGRAM, Settings
from templates.common.errors import ConfigError, one_line
from templates.nats.connection import Link, Request
from templates.nats.options import LinkSettings, connect_options
from templates.nats.requests import LinkError
from templates.nats.subjects import SITE, SubjectRow, heard_by, published_by, queue_group, subject
from templates.program.settings import link_settings
from templates.protocol import messages
from templates.protocol.messages import UNAVAILABLE, Refusal

TIMEOUT_S = 8.0
POLL_S = 0.05
PORTS = {"wss": 443, "ws": 80, "tls": 4222, "nats": 4222}
PROBE = "check"
CHECKING = Refusal(UNAVAILABLE, "the site is being checked", True)
MEND_RIGHTS = "give the site's user this right (scripts/nats-site add writes them all)"


async def check(settings: Settings, report: Report) -> None:
    """Every server, and then the rights of this site on the first one that works."""
    wanted = link_settings(settings.nats, PROGRAM)
    works = ""
    for url in settings.nats.servers:
        if await _check_server(url, wanted, report) and not works:
            works = url
    if works:
        await _check_rights(settings, wanted._replace(servers=(works,)), report)


@contextlib.asynccontextmanager
async def connection(settings: Settings) -> AsyncIterator[Link]:
    """One, if it can be had: what is wrong with it was said by then."""
    link = Link(link_settings(settings.nats, PROGRAM), settings.nats.root)
    try:
        with contextlib.suppress(LinkError, asyncio.TimeoutError):
            await asyncio.wait_for(_begun(link), TIMEOUT_S)
        yield link
    finally:
        await link.stop()


# --- one server -----------------------------------------------------------------------------------


async def _check_server(url: str, wanted: LinkSettings, report: Report) -> bool:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    wanted = wanted._replace(servers=(url,))
    try:
        tls = connect_options(wanted).get("tls")
    except ConfigError:
        report.note(url, "not tried: a file is missing, see above")
        return False
    direct = tls if parts.scheme == "wss" else None
    steps: tuple[tuple[str, Callable[[], Awaitable[str]]], ...] = (
        ("name", lambda: _resolve(host, port)),
        ("port", lambda: _connect(host, port)),
        ("certificate", lambda: _connect(host, port, direct) if direct else _nothing()),
        ("credentials", lambda: _log_in(wanted)),
    )
    for step, attempt in steps:
        try:
            words = await asyncio.wait_for(attempt(), TIMEOUT_S)
        except (OSError, asyncio.TimeoutError, LinkError) as error:
            report.wrong(f"{url}: {step}", *_explained(error, host, port))
            return False
        if words:
            report.ok(f"{url}: {step}", words)
    return True


async def _nothing() -> str:
    return ""


async def _resolve(host: str, port: int) -> str:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return ", ".join(sorted({str(entry[4][0]) for entry in found}))


async def _connect(host: str, port: int, tls: object = None) -> str:
    # Not the shutdown of TLS: some servers never answer it.
    _, writer = await asyncio.open_connection(
        host, port, ssl=tls if isinstance(tls, ssl.SSLContext) else None
    )
    writer.transport.abort()
    return "trusted" if tls else f"{host} listens on {port}"


async def _log_in(wanted: LinkSettings) -> str:
    link = Link(wanted, "unused")
    try:
        await _begun(link)
    finally:
        await link.stop()
    return f"accepted ({_way_in(wanted)})"


async def _begun(link: Link) -> None:
    """Connect once; raises what came of it instead."""
    before = link.trouble
    await link.start()
    while not link.is_connected:
        if link.trouble != before:
            raise LinkError(link.trouble)
        await asyncio.sleep(POLL_S)


def _way_in(wanted: LinkSettings) -> str:
    ways = {
        "password": wanted.password_file,
        "token": wanted.token_file,
        "NKey": wanted.nkey_file,
        "JWT": wanted.credentials_file,
    }
    return next((name for name, file in ways.items() if file), "none needed")


def _explained(error: BaseException, host: str, port: int) -> tuple[str, str]:
    """What an error means, and how to mend it."""
    words = one_line(str(error))
    if isinstance(error, socket.gaierror):
        return f"{host} is not known here ({error.strerror})", "correct it, or this machine's DNS"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        if "Hostname mismatch" in why or "IP address mismatch" in why:
            return why, "name the server as its certificate does"
        return f"not trusted: {why}", "name the CA's certificate in nats.ca_file"
    if isinstance(error, ssl.SSLError):
        return f"no TLS there: {error.reason or words}", "use ws:// or nats://, or another port"
    if isinstance(error, LinkError):
        return _explained_by_link(words)
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens on {host}:{port}", "start the server, or correct the port"
    if isinstance(error, asyncio.TimeoutError):
        return f"no answer from {host}:{port} within {TIMEOUT_S:g} s", "let the firewall pass it"
    return words or type(error).__name__, "let the firewall pass it, or correct the address"


def _explained_by_link(words: str) -> tuple[str, str]:
    if "authorization" in words.lower():
        mend = "compare the secret's file and the user with the server's configuration"
        return "the server refuses who we say we are", mend
    if "CERTIFICATE_VERIFY_FAILED" in words:
        return f"not trusted: {words}", "name the CA's certificate in nats.ca_file"
    return words, "look into the log of the NATS server"


# --- rights ---------------------------------------------------------------------------------------


async def _check_rights(settings: Settings, wanted: LinkSettings, report: Report) -> None:
    root = settings.nats.root
    for pool in settings.pools:
        missing = [f"publish {s}" for s in await _unsayable(root, pool.name, wanted)]
        for row in heard_by(SITE):
            if not await _may_hear(row, root, pool.name, wanted):
                where, queue = _probe(row, root, pool.name), queue_group(row, pool.name)
                group = f" (queue group {queue})" if queue else ""
                missing.append(f"subscribe {where}{group}")
        if missing:
            words = "the server does not permit: " + ", ".join(missing)
            report.wrong(f"pool {pool.name}: rights", words, MEND_RIGHTS)
        else:
            report.ok(f"pool {pool.name}: rights", "all subjects of the pool")


def _probe(row: SubjectRow, root: str, pool: str) -> str:
    """Return a subject of this kind: one that nothing is ever sent on, where there is one."""
    return subject(root, row.kind, pool, PROBE)


async def _may_hear(row: SubjectRow, root: str, pool: str, wanted: LinkSettings) -> bool:
    """Return whether a subscription is permitted: one that is not keeps a link from connecting."""
    link = Link(wanted, root)

    async def refuse(request: Request) -> None:
        if row.queued:
            await request.answer(pool, messages.refusal(CHECKING))

    link.subscribe(_probe(row, root, pool), refuse, queue_group(row, pool))
    try:
        await asyncio.wait_for(_begun(link), TIMEOUT_S)
    except (LinkError, asyncio.TimeoutError):
        return False
    finally:
        await link.stop()
    return True


async def _unsayable(root: str, pool: str, wanted: LinkSettings) -> list[str]:
    """Return subjects that we may not publish to; nobody reads the version that is said there."""
    link, missing = Link(wanted, root), []
    try:
        await asyncio.wait_for(_begun(link), TIMEOUT_S)
        for row in published_by(SITE):
            link.complaints.clear()
            where = _probe(row, root, pool)
            await link.publish(where, {"v": 0})
            await link.settle()
            if link.complaints:
                missing.append(where)
    except (LinkError, asyncio.TimeoutError) as error:
        missing.append(f"anything ({error})")
    finally:
        await link.stop()
    return missing
