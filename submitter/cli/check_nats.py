"""Checks of the connection to NATS and of the rights there, step by step.

Each step is tried by itself, because "cannot connect" helps nobody: the name, the port, the
certificate, the credentials, and every subject of every pool. Subscribers ignore what is published
here; a queue group misses messages only while its subject is tried.
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
from submitter.config.settings import Settings
from templates.common.errors import ConfigError, one_line
from templates.nats.connection import Link, Request
from templates.nats.options import LinkSettings, connect_options
from templates.nats.requests import LinkError
from templates.nats.subjects import (
    SITE,
    SubjectRow,
    published_by,
    queue_group,
    subject,
    subscribed_by,
)
from templates.protocol import messages
from templates.protocol.messages import UNAVAILABLE, Refusal

TIMEOUT_S = 8.0
POLL_S = 0.05
PORTS = {"wss": 443, "ws": 80, "tls": 4222, "nats": 4222}
PROBE = "check"
BEING_CHECKED = Refusal(UNAVAILABLE, "the site is being checked", True)
RIGHTS_HINT = "give the site's user this right (scripts/nats-site add writes them all)"


async def check(settings: Settings, options: LinkSettings, report: Report) -> None:
    """Check every server, and the rights of this site on the first one that works."""
    working = ""
    for url in settings.nats.servers:
        if await _check_server(url, options, report) and not working:
            working = url
    if working:
        await _check_rights(settings, options._replace(servers=(working,)), report)


@contextlib.asynccontextmanager
async def open_link(settings: Settings, options: LinkSettings) -> AsyncIterator[Link]:
    """Yield a link, connected if possible: ``check`` has reported the errors."""
    link = Link(options, settings.nats.root)
    try:
        with contextlib.suppress(LinkError, asyncio.TimeoutError):
            await asyncio.wait_for(_connect_once(link), TIMEOUT_S)
        yield link
    finally:
        await link.stop()


# --- one server -----------------------------------------------------------------------------------


async def _check_server(url: str, options: LinkSettings, report: Report) -> bool:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    options = options._replace(servers=(url,))
    try:
        tls = connect_options(options).get("tls")
    except ConfigError:
        report.note(url, "not tried: a file is missing, see above")
        return False
    direct_tls = tls if parts.scheme == "wss" else None
    steps: tuple[tuple[str, Callable[[], Awaitable[str]]], ...] = (
        ("name", lambda: _resolve(host, port)),
        ("port", lambda: _connect(host, port)),
        ("certificate", lambda: _connect(host, port, direct_tls) if direct_tls else _skip()),
        ("credentials", lambda: _log_in(options)),
    )
    for step, attempt in steps:
        try:
            message = await asyncio.wait_for(attempt(), TIMEOUT_S)
        except (OSError, asyncio.TimeoutError, LinkError) as error:
            report.wrong(f"{url}: {step}", *_explain(error, host, port))
            return False
        if message:
            report.ok(f"{url}: {step}", message)
    return True


async def _skip() -> str:
    return ""


async def _resolve(host: str, port: int) -> str:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return ", ".join(sorted({str(entry[4][0]) for entry in found}))


async def _connect(host: str, port: int, tls: object = None) -> str:
    # Abort, without the shutdown of TLS: some servers never answer it.
    _, writer = await asyncio.open_connection(
        host, port, ssl=tls if isinstance(tls, ssl.SSLContext) else None
    )
    writer.transport.abort()
    return "trusted" if tls else f"{host} listens on {port}"


async def _log_in(options: LinkSettings) -> str:
    link = Link(options, "unused")
    try:
        await _connect_once(link)
    finally:
        await link.stop()
    return f"accepted ({_credentials_kind(options)})"


async def _connect_once(link: Link) -> None:
    """Connect; raise ``LinkError`` if the first attempt fails."""
    previous_error = link.error
    await link.start()
    while not link.is_connected:
        if link.error != previous_error:
            raise LinkError(link.error)
        await asyncio.sleep(POLL_S)


def _credentials_kind(options: LinkSettings) -> str:
    kinds = {
        "password": options.password_file,
        "token": options.token_file,
        "NKey": options.nkey_file,
        "JWT": options.credentials_file,
    }
    return next((name for name, file in kinds.items() if file), "none needed")


def _explain(error: BaseException, host: str, port: int) -> tuple[str, str]:
    """Return what an error means, and a hint."""
    message = one_line(str(error))
    if isinstance(error, socket.gaierror):
        return f"{host} is not known here ({error.strerror})", "correct it, or this machine's DNS"
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message
        if "Hostname mismatch" in reason or "IP address mismatch" in reason:
            return reason, "name the server as its certificate does"
        return f"not trusted: {reason}", "name the CA's certificate in nats.ca_file"
    if isinstance(error, ssl.SSLError):
        return f"no TLS there: {error.reason or message}", "use ws:// or nats://, or another port"
    if isinstance(error, LinkError):
        return _explain_link_error(message)
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens on {host}:{port}", "start the server, or correct the port"
    if isinstance(error, asyncio.TimeoutError):
        return f"no answer from {host}:{port} within {TIMEOUT_S:g} s", "let the firewall pass it"
    return message or type(error).__name__, "let the firewall pass it, or correct the address"


def _explain_link_error(message: str) -> tuple[str, str]:
    if "authorization" in message.lower():
        hint = "compare the secret's file and the user with the server's configuration"
        return "the server refuses who we say we are", hint
    if "CERTIFICATE_VERIFY_FAILED" in message:
        return f"not trusted: {message}", "name the CA's certificate in nats.ca_file"
    return message, "look into the log of the NATS server"


# --- rights ---------------------------------------------------------------------------------------


async def _check_rights(settings: Settings, options: LinkSettings, report: Report) -> None:
    root = settings.nats.root
    for pool in settings.pools:
        missing = [f"publish {s}" for s in await _forbidden_subjects(root, pool.name, options)]
        for row in subscribed_by(SITE):
            if not await _may_subscribe(row, root, pool.name, options):
                tested_subject, queue = _probe(row, root, pool.name), queue_group(row, pool.name)
                group = f" (queue group {queue})" if queue else ""
                missing.append(f"subscribe {tested_subject}{group}")
        if missing:
            message = "the server does not permit: " + ", ".join(missing)
            report.wrong(f"pool {pool.name}: rights", message, RIGHTS_HINT)
        else:
            report.ok(f"pool {pool.name}: rights", "all subjects of the pool")


def _probe(row: SubjectRow, root: str, pool: str) -> str:
    """Return a subject of this kind; where possible, one that is never used."""
    return subject(root, row.kind, pool, PROBE)


async def _may_subscribe(row: SubjectRow, root: str, pool: str, options: LinkSettings) -> bool:
    """Return whether a subscription is permitted: a forbidden one keeps a link from connecting."""
    link = Link(options, root)

    async def refuse(request: Request) -> None:
        if row.queued:
            await request.answer(pool, messages.write_refusal(BEING_CHECKED))

    link.subscribe(_probe(row, root, pool), refuse, queue_group(row, pool))
    try:
        await asyncio.wait_for(_connect_once(link), TIMEOUT_S)
    except (LinkError, asyncio.TimeoutError):
        return False
    finally:
        await link.stop()
    return True


async def _forbidden_subjects(root: str, pool: str, options: LinkSettings) -> list[str]:
    """Return subjects that we may not publish to; subscribers ignore this message version."""
    link, missing = Link(options, root), []
    try:
        await asyncio.wait_for(_connect_once(link), TIMEOUT_S)
        for row in published_by(SITE):
            link.server_errors.clear()
            tested_subject = _probe(row, root, pool)
            await link.publish(tested_subject, {"v": 0})
            await link.settle()
            if link.server_errors:
                missing.append(tested_subject)
    except (LinkError, asyncio.TimeoutError) as error:
        missing.append(f"anything ({error})")
    finally:
        await link.stop()
    return missing
