"""Answers requests for logs: one window of one container's log at a time, nothing remembered.

The cursor says where the next window goes on, so any submitter of the pool can answer it, and a
reader that stops costs nothing. However long a log is, one chunk of it is in memory at a time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from typing import Any, NamedTuple, Optional, Union

from submitter.common.errors import SubmitterError
from submitter.jobs.context import Site
from submitter.jobs.table import Entry
from submitter.pool.incoming import Refused, received
from submitter.store.journal import read
from submitter.store.log_files import (
    Stamper,
    Window,
    parse_cursor,
    path_of,
    since_offset,
    starts,
    tail_offset,
)
from templates.common.errors import WireError
from templates.job.records import TERMINATED
from templates.job.status import ENDED
from templates.nats import codec
from templates.nats.connection import Link, Request
from templates.protocol import messages
from templates.protocol.messages import (
    LOG_DATA,
    MALFORMED,
    UNAVAILABLE,
    UNKNOWN,
    LogEnd,
    LogRequest,
    Refusal,
)

logger = logging.getLogger(__name__)

LOOK_S = 0.25  # between two looks at a log that is followed
LOOKS = 8  # at one that has to be brought first
LONGEST_WAIT_S = 60.0
LINE_GROWTH = 32  # bytes by which a time makes a line longer, at most
LEAST_CHUNK = 1024
LONGEST_OUTPUT = 64 * 1024  # of a job's own output, where no container has one
CRASH_LOOP = "CrashLoopBackOff"


class Log(NamedTuple):
    """The file that a request is about, and from where on."""

    path: str
    window: Window
    over: bool  # nothing will be written to it any more


class LogServer:
    """The logs of one pool's jobs."""

    def __init__(self, site: Site, link: Link) -> None:
        self._site, self._link = site, link

    async def serve(self, pool: str, request: Request) -> None:
        """Answer one request, in data messages and a last one that is JSON."""
        if not request.reply:
            return
        end: Union[LogEnd, Refusal]
        try:
            wanted = messages.read_log_request(await received(request, pool))
            end = await self._window(wanted, request.reply)
        except Refused as refused:
            end = refused.refusal
        except WireError as error:
            end = Refusal(MALFORMED, str(error), False)
        except OSError as error:
            end = Refusal(UNAVAILABLE, f"the log cannot be read: {error.strerror}", True)
        last = messages.refusal(end) if isinstance(end, Refusal) else messages.log_end(end)
        await self._link.publish_raw(request.reply, codec.encode(last))

    async def _window(self, wanted: LogRequest, reply: str) -> Union[LogEnd, Refusal]:
        entry = self._site.table.get(wanted.job)
        if entry is None:
            return Refusal(UNKNOWN, "there is no such job", False)
        if _container(entry, wanted.container) is None:
            return Refusal(UNKNOWN, f"it has no container {wanted.container}", False)
        log = await self._awaited(entry, wanted)
        if log is None and wanted.previous:
            words = f"container {wanted.container} has not been started before"
            return Refusal(UNKNOWN, words, False)
        if log is None:
            return await self._without_log(entry, wanted, reply)
        window, sent = await self._send(log, wanted, reply)
        size = await asyncio.to_thread(_size, log.path)
        follows = wanted.follow and not log.over
        return LogEnd(str(window), sent, window.offset >= size and not follows)

    # --- which log ----------------------------------------------------------------------------

    async def _awaited(self, entry: Entry, wanted: LogRequest) -> Optional[Log]:
        """The log; of one that is followed, when there is something to say, or time is up."""
        end = time.monotonic() + min(wanted.wait_s, LONGEST_WAIT_S)
        while True:
            log = await self._find(entry, wanted)
            if not wanted.follow or time.monotonic() >= end or entry.has_ended:
                return log
            if log is not None:
                size = await asyncio.to_thread(_size, log.path)
                if log.over or size > log.window.offset:
                    return log
                wanted = wanted._replace(cursor=str(log.window))  # not the end of another time
            await asyncio.sleep(LOOK_S)

    async def _find(self, entry: Entry, wanted: LogRequest) -> Optional[Log]:
        directory = self._site.journal.of(entry.name)
        cursor = parse_cursor(wanted.cursor)
        if wanted.cursor and cursor is None:
            raise WireError("logs.cursor", "is none of ours")
        over = _is_over(entry, wanted.container)
        trouble = ""
        if self._site.backend.brings_logs and not entry.cleaned:
            trouble = await self._bring(entry.name, wanted.container)
        if trouble and (entry.has_ended or not wanted.follow):
            words = f"not all of the log is here yet: {trouble}"
            raise Refused(Refusal(UNAVAILABLE, words, True))
        if cursor is None:
            ended = over if _comes_again(entry, wanted.container) else 0
            cursor = await asyncio.to_thread(_begin, directory, wanted, ended)
        if cursor is None:
            return None
        path = path_of(directory, wanted.container, cursor.start)
        return Log(path, cursor, over > cursor.start and not trouble)

    async def _bring(self, name: str, container: str) -> str:
        """Why it could not be brought; empty when it is here. Somebody else may just be at it."""
        for _ in range(LOOKS):
            try:
                if await asyncio.to_thread(self._site.backend.bring_logs, name, container):
                    return ""
            except SubmitterError as error:
                logger.info("pool=%s job=%s: its log: %s", self._site.pool.name, name, error)
                return str(error)
            await asyncio.sleep(LOOK_S)
        return "the batch system does not tell it"

    # --- sending ------------------------------------------------------------------------------

    async def _send(self, log: Log, wanted: LogRequest, reply: str) -> tuple[Window, int]:
        """Where the next window begins, and how many bytes went into this one."""
        window, sent = log.window, 0
        stamper = Stamper(log.path, window) if wanted.timestamps else None
        most = self._link.part_size - len(LOG_DATA)
        try:
            descriptor = await asyncio.to_thread(os.open, log.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # an old start's, removed meanwhile
            return window, 0
        try:
            while True:
                size = _chunk(wanted.window_bytes - sent, most, stamper is not None, sent == 0)
                data = await asyncio.to_thread(os.pread, descriptor, size, window.offset)
                if not data:
                    return window, sent
                window = window._replace(offset=window.offset + len(data))
                if stamper is not None:
                    data = await asyncio.to_thread(stamper.stamped, data)
                    window = window._replace(midline=stamper.midline)
                sent += len(data)
                await self._link.publish_raw(reply, LOG_DATA + data)
        finally:
            os.close(descriptor)

    async def _without_log(self, entry: Entry, wanted: LogRequest, reply: str) -> LogEnd:
        """A container that has not been started; of a job that none was, say what it said."""
        if not entry.has_ended:
            return LogEnd("", 0, not wanted.follow)
        directory = self._site.journal.of(entry.name)
        said = json.loads(entry.dump()).get("message", "")
        data = await asyncio.to_thread(_output, directory, said)
        data = data[: min(wanted.window_bytes, self._link.part_size - 1)]
        if data:
            await self._link.publish_raw(reply, LOG_DATA + data)
        return LogEnd("", len(data), True)


def _chunk(room: int, most: int, stamped: bool, first: bool) -> int:
    """How much of the log to read for the next message; 0 when the window is full."""
    if not stamped:
        return max(min(room, most), 0)
    size = min(room, most) // LINE_GROWTH  # if each line were an empty one
    return max(size, 1) if first else size if size >= LEAST_CHUNK else 0


def _begin(directory: str, wanted: LogRequest, ended: int) -> Optional[Window]:
    """Where the first window begins; None where there is no log.

    The start before is the one before the last; those below ``ended`` are before the next one.
    """
    known = starts(directory, wanted.container)
    if wanted.previous and known and ended <= known[-1]:
        known.pop()
    if not known:
        return None
    path = path_of(directory, wanted.container, known[-1])
    offset = 0
    if wanted.since_ms:
        offset = since_offset(path, wanted.since_ms)
    if wanted.tail >= 0:
        offset = max(offset, tail_offset(path, wanted.tail))
    return Window(known[-1], offset, False)


def _output(directory: str, said: str) -> bytes:
    """What is known of a job of which no container was ever started."""
    try:
        if any(name.endswith(".log") for name in os.listdir(f"{directory}/logs")):
            return b""
    except FileNotFoundError:
        pass
    output = (read(f"{directory}/output") or b"")[-LONGEST_OUTPUT:]
    if not output and not said:
        return b""
    head = f"interlink: no container was started{': ' if said else ''}{said}\n"
    if output:
        head += "interlink: the job's own output:\n"
    return head.encode() + output


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


# --- what the table says --------------------------------------------------------------------------


def _container(entry: Entry, name: str) -> Optional[dict[str, Any]]:
    for container in json.loads(entry.dump())["containers"]:
        if container["name"] == name:
            found: dict[str, Any] = container
            return found
    return None


def _comes_again(entry: Entry, name: str) -> bool:
    """Whether the container waits for its next start."""
    container = _container(entry, name) or {}
    return not entry.has_ended and container.get("reason") == CRASH_LOOP


def _is_over(entry: Entry, name: str) -> int:
    """Starts of the container before this one have ended, so nothing is added to their logs."""
    status = json.loads(entry.dump())
    if status["phase"] == ENDED:
        return 2**62
    container = _container(entry, name) or {}
    restarts = int(container.get("restarts", 0))
    between = container["state"] == TERMINATED or container.get("reason") == CRASH_LOOP
    return restarts + 1 if between else restarts
