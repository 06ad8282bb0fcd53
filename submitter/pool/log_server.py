"""Requests for logs: one window of one container's log at a time, without any state in between.

The cursor says where the next window begins, so any submitter of the pool can answer it, and a
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
from submitter.common.guarded_files import OddEntry, open_file, read_end
from submitter.jobs.context import PoolContext
from submitter.jobs.table import TrackedJob
from submitter.pool.incoming import RequestRefused, read_message
from submitter.store.log_files import (
    LogWindow,
    Stamper,
    list_starts,
    parse_cursor,
    path_of,
    since_offset,
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

POLL_S = 0.25  # between two checks of a log
FETCH_ATTEMPTS = 8  # of a log that the backend has to fetch
LONGEST_WAIT_S = 60.0
LINE_GROWTH = 32  # bytes by which a time makes a line longer, at most
SMALLEST_CHUNK = 1024
LARGEST_OUTPUT = 64 * 1024  # of the job script itself, where no container has a log
CRASH_LOOP = "CrashLoopBackOff"


class LogSource(NamedTuple):
    """The file to send, and the window to begin with."""

    path: str
    window: LogWindow
    is_complete: bool  # nothing is written to it any more


class LogServer:
    """Answers to requests for the logs of one pool's jobs."""

    def __init__(self, context: PoolContext, link: Link) -> None:
        self._context, self._link = context, link

    async def serve(self, pool: str, request: Request) -> None:
        """Answer one request with data messages and a last one in JSON."""
        if not request.reply:
            return
        end: Union[LogEnd, Refusal]
        try:
            wanted = messages.read_log_request(await read_message(request, pool))
            end = await self._answer(wanted, request.reply)
        except RequestRefused as refused:
            end = refused.refusal
        except WireError as error:
            end = Refusal(MALFORMED, str(error), False)
        except OSError as error:
            end = Refusal(UNAVAILABLE, f"the log cannot be read: {error.strerror}", True)
        last = (
            messages.write_refusal(end) if isinstance(end, Refusal) else messages.write_log_end(end)
        )
        await self._link.publish_raw(request.reply, codec.encode(last))

    async def _answer(self, wanted: LogRequest, reply: str) -> Union[LogEnd, Refusal]:
        entry = self._context.table.get(wanted.job)
        if entry is None:
            return Refusal(UNKNOWN, "there is no such job", False)
        if _find_container(entry, wanted.container) is None:
            return Refusal(UNKNOWN, f"it has no container {wanted.container}", False)
        log = await self._wait_for_log(entry, wanted)
        if log is None and wanted.previous:
            message = f"container {wanted.container} has not been started before"
            return Refusal(UNKNOWN, message, False)
        if log is None:
            return await self._send_job_output(entry, wanted, reply)
        window, sent = await self._send_window(log, wanted, reply)
        size = await asyncio.to_thread(_size, log.path)
        follows = wanted.follow and not log.is_complete
        return LogEnd(str(window), sent, window.offset >= size and not follows)

    # --- which log ----------------------------------------------------------------------------

    async def _wait_for_log(self, entry: TrackedJob, wanted: LogRequest) -> Optional[LogSource]:
        """Return the log; wait for new data of a followed one, until the request's time is up.

        None if there is no log.
        """
        end = time.monotonic() + min(wanted.wait_s, LONGEST_WAIT_S)
        while True:
            log = await self._find(entry, wanted)
            if not wanted.follow or time.monotonic() >= end or entry.has_ended:
                return log
            if log is not None:
                size = await asyncio.to_thread(_size, log.path)
                if log.is_complete or size > log.window.offset:
                    return log
                wanted = wanted._replace(
                    cursor=str(log.window)
                )  # look from there on: a new search might end elsewhere
            await asyncio.sleep(POLL_S)

    async def _find(self, entry: TrackedJob, wanted: LogRequest) -> Optional[LogSource]:
        directory = self._context.journal.of(entry.name)
        cursor = parse_cursor(wanted.cursor)
        if wanted.cursor and cursor is None:
            raise WireError("logs.cursor", "is none of ours")
        first_open = _first_open_start(entry, wanted.container)
        error = ""
        if self._context.backend.fetches_logs and not entry.cleaned:
            error = await self._fetch_log(entry.name, wanted.container)
        if error and (entry.has_ended or not wanted.follow):
            message = f"not all of the log is here yet: {error}"
            raise RequestRefused(Refusal(UNAVAILABLE, message, True))
        if cursor is None:
            awaited = first_open if _is_restarting(entry, wanted.container) else 0
            cursor = await asyncio.to_thread(_first_window, directory, wanted, awaited)
        if cursor is None:
            return None
        path = path_of(directory, wanted.container, cursor.start)
        return LogSource(path, cursor, first_open > cursor.start and not error)

    async def _fetch_log(self, name: str, container: str) -> str:
        """Fetch a log; return the error, empty if there is none. Another process may be at it."""
        for _ in range(FETCH_ATTEMPTS):
            try:
                if await asyncio.to_thread(self._context.backend.fetch_logs, name, container):
                    return ""
            except SubmitterError as error:
                logger.info("pool=%s job=%s: its log: %s", self._context.pool.name, name, error)
                return str(error)
            await asyncio.sleep(POLL_S)
        return "the batch system does not tell it"

    # --- sending ------------------------------------------------------------------------------

    async def _send_window(
        self, log: LogSource, wanted: LogRequest, reply: str
    ) -> tuple[LogWindow, int]:
        """Send one window; return where the next one begins, and how many bytes this one has."""
        window, sent = log.window, 0
        stamper = Stamper(log.path, window) if wanted.timestamps else None
        largest_message = self._link.part_size - len(LOG_DATA)
        try:
            descriptor = await asyncio.to_thread(open_file, log.path)
        except FileNotFoundError:  # the log of an old start, removed meanwhile
            return window, 0
        try:
            while True:
                size = _chunk_size(
                    wanted.window_bytes - sent, largest_message, stamper is not None, sent == 0
                )
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

    async def _send_job_output(self, entry: TrackedJob, wanted: LogRequest, reply: str) -> LogEnd:
        """Answer for a container without a log: with the job's own output if it has ended."""
        if not entry.has_ended:
            return LogEnd("", 0, not wanted.follow)
        directory = self._context.journal.of(entry.name)
        message = json.loads(entry.dump()).get("message", "")
        data = await asyncio.to_thread(_job_output, directory, message)
        data = data[: min(wanted.window_bytes, self._link.part_size - 1)]
        if data:
            await self._link.publish_raw(reply, LOG_DATA + data)
        return LogEnd("", len(data), True)


def _chunk_size(remaining: int, largest_message: int, stamped: bool, is_first: bool) -> int:
    """Return how much of the log to read for the next message; 0 when the window is full."""
    if not stamped:
        return max(min(remaining, largest_message), 0)
    size = min(remaining, largest_message) // LINE_GROWTH  # if each line were an empty one
    if is_first:
        return max(size, 1)
    return size if size >= SMALLEST_CHUNK else 0


def _first_window(directory: str, wanted: LogRequest, awaited: int) -> Optional[LogWindow]:
    """Return the first window; None where there is no log.

    With ``previous`` that is the last start but one; the last one, if the container waits for start
    ``awaited`` (0: for none), which has no log yet.
    """
    starts = list_starts(directory, wanted.container)
    if wanted.previous and starts and awaited <= starts[-1]:
        starts.pop()
    if not starts:
        return None
    path = path_of(directory, wanted.container, starts[-1])
    offset = 0
    if wanted.since_ms:
        offset = since_offset(path, wanted.since_ms)
    if wanted.tail >= 0:
        offset = max(offset, tail_offset(path, wanted.tail))
    return LogWindow(starts[-1], offset, False)


def _job_output(directory: str, message: str) -> bytes:
    """Return the output of a job of which no container was ever started, with its message."""
    try:
        if any(name.endswith(".log") for name in os.listdir(f"{directory}/logs")):
            return b""
    except FileNotFoundError:
        pass
    try:
        output = read_end(f"{directory}/output", LARGEST_OUTPUT)
    except OddEntry:
        output = b""
    if not output and not message:
        return b""
    head = f"interlink: no container was started{': ' if message else ''}{message}\n"
    if output:
        head += "interlink: the job's own output:\n"
    return head.encode() + output


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


# --- states of containers ------------------------------------------------------------------------


def _find_container(entry: TrackedJob, name: str) -> Optional[dict[str, Any]]:
    for container in json.loads(entry.dump())["containers"]:
        if container["name"] == name:
            found: dict[str, Any] = container
            return found
    return None


def _is_restarting(entry: TrackedJob, name: str) -> bool:
    """Return whether the container waits for its next start."""
    container = _find_container(entry, name) or {}
    return not entry.has_ended and container.get("reason") == CRASH_LOOP


def _first_open_start(entry: TrackedJob, name: str) -> int:
    """Return the first start that may not have ended; logs of those before it are complete."""
    status = json.loads(entry.dump())
    if status["phase"] == ENDED:
        return 2**62
    container = _find_container(entry, name) or {}
    restarts = int(container.get("restarts", 0))
    is_between_starts = container["state"] == TERMINATED or container.get("reason") == CRASH_LOOP
    return restarts + 1 if is_between_starts else restarts
