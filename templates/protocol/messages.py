"""What our programs say to each other, and the JSON in which they say it.

Every reader checks what it reads: the other end may be a newer version, or a liar. Unknown fields
are ignored, so that a message can grow; a missing or wrong one is a ``WireError`` that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple, Optional, Union

from templates.common.errors import PodRejected, WireError, one_line
from templates.common.names import check_token, is_label, uid_of
from templates.common.validation import (
    flag_at,
    list_at,
    object_at,
    objects_at,
    text_at,
    text_map_at,
    texts_at,
)
from templates.job.model import File, Job, split_script
from templates.job.status import KINDS
from templates.nats.codec import ATTACHMENTS
from templates.pod.model import MAIN

# Why a request was refused. None of them leaves anything behind at the site.
MALFORMED = "malformed"  # the request is not what it should be: a bug, or a newer version
FORBIDDEN = "forbidden"  # the site's policy, or the batch system, says no
DELETED = "deleted"  # the pod's deletion came before its creation
UNAVAILABLE = "unavailable"  # the site cannot take it now: full disk, draining, ...
UNKNOWN = "unknown"  # there is no such job, or no such container

# What a delete found.
CANCELLING = "cancelling"
GONE = "gone"

LARGEST_NUMBER = 2**63 - 1

_DOTS = frozenset(("", ".", ".."))  # what no part of a relative path may be


class Refusal(NamedTuple):
    """The answer to a request that was not carried out."""

    code: str
    message: str
    retry: bool  # whether the same request may succeed later


class Delete(NamedTuple):
    """End a job and remove what it left."""

    job: str
    grace_period_s: Optional[int]  # None: the job's own


class Query(NamedTuple):
    """Ask for states: of some jobs, or of all of them, one page after the other."""

    jobs: Optional[tuple[str, ...]]
    cursor: str = ""


class LogRequest(NamedTuple):
    """A window of a container's log: from a cursor on, so many bytes in messages of that size."""

    job: str
    container: str
    cursor: str  # empty: from where the options below say
    window_bytes: int
    wait_s: int  # how long to wait for something to say, when following
    follow: bool
    previous: bool
    timestamps: bool
    tail: int  # -1: all
    since_ms: int


@contextmanager
def reading() -> Iterator[None]:
    """What the shared field readers refuse here is a message, not a pod."""
    try:
        yield
    except PodRejected as error:
        raise WireError(error.where, error.what) from None


def count_at(holder: Mapping[str, Any], key: str, where: str, minimum: int = 0) -> int:
    """A whole number; ``minimum``, or 0 if that is less, when absent."""
    value = holder.get(key, max(minimum, 0))
    if type(value) is not int or not minimum <= value <= LARGEST_NUMBER:
        raise WireError(f"{where}.{key}", f"must be a whole number of at least {minimum}")
    return value


# --- create -------------------------------------------------------------------------------------


def create(jobs: Iterable[Job]) -> dict[str, Any]:
    """Jobs to run; their scripts and the contents of their files are attachments."""
    described: list[dict[str, Any]] = []
    attached: list[bytes] = []
    for job in jobs:
        described.append(describe(job))
        attached += [half.encode() for half in split_script(job.script)]
        attached += [file.content for file in job.files]
    return {"jobs": described, ATTACHMENTS: attached}


def read_create(message: Mapping[str, Any]) -> list[Union[Job, WireError]]:
    """The jobs in a create message, each or what is wrong with it; the order is the sender's."""
    with reading():
        described = list_at(message, "jobs", "create")
    attached = message.get(ATTACHMENTS)
    if type(attached) is not list or {*map(type, attached)} - {bytes}:
        raise WireError("create.attachments", "must be scripts and the contents of files")
    counts = [2 + _number_of_files(entry) for entry in described]
    if not counts or sum(counts) != len(attached):
        raise WireError("create.attachments", "are not those of the jobs")
    jobs: list[Union[Job, WireError]] = []
    for entry, end, count in zip(described, accumulate(counts), counts):
        try:
            own, functions, *contents = attached[end - count : end]
            jobs.append(read_job(entry, own + functions, contents))
        except WireError as error:
            jobs.append(error)
    return jobs


def _number_of_files(described: object) -> int:
    files = described.get("files", []) if type(described) is dict else None
    if type(files) is not list:
        raise WireError("create.jobs", "must be objects with a list of files each")
    return len(files)


def describe(job: Job) -> dict[str, Any]:
    """A job without its script and the contents of its files."""
    described = job._asdict()
    del described["script"]
    described["gpus"] = dict(job.gpus)
    described["other_resources"] = dict(job.other_resources)
    described["annotations"] = dict(job.annotations)
    described["files"] = [(file.path, file.mode, file.secret) for file in job.files]
    return described


def read_job(message: Mapping[str, Any], script: bytes, contents: Sequence[bytes]) -> Job:
    """The job that was described, with its script and the contents of its files."""
    where = "create"
    with reading():
        name = text_at(message, "name", where)
        if uid_of(name) != text_at(message, "uid", where):
            raise WireError("create.uid", "is not that of the job's name")
        wall_time, gpus = message.get("wall_time_s"), object_at(message, "gpus", where)
        return Job(
            name=name,
            uid=text_at(message, "uid", where),
            namespace=check_token("create.namespace", message.get("namespace")),
            pod=text_at(message, "pod", where),
            runtime=text_at(message, "runtime", where),
            script=_read_script(script),
            files=_read_files(list_at(message, "files", where), contents),
            cpu_milli=count_at(message, "cpu_milli", where),
            memory_bytes=count_at(message, "memory_bytes", where),
            gpus={key: count_at(gpus, key, "create.gpus") for key in gpus},
            wall_time_s=None if wall_time is None else count_at(message, "wall_time_s", where, 1),
            other_resources=text_map_at(message, "other_resources", where),
            annotations=text_map_at(message, "annotations", where),
            containers=_containers(message, where),
            grace_period_s=count_at(message, "grace_period_s", where),
            host_paths=tuple(texts_at(message, "host_paths", where)),
            privileged=bool(flag_at(message, "privileged", where)),
            origin=text_at(message, "origin", where),
        )


def _read_script(content: bytes) -> str:
    if not content:
        raise WireError("create.script", "must not be empty")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise WireError("create.script", "is not UTF-8 text") from None


def _read_files(entries: list[Any], contents: Sequence[bytes]) -> tuple[File, ...]:
    if len(entries) != len(contents):
        raise WireError("create.files", "must be as many as the attachments behind the script")
    return tuple(map(_read_file, entries, contents))


def _read_file(raw: object, content: bytes) -> File:
    where = "create.files"
    if type(raw) is not list or list(map(type, raw)) != [str, int, bool]:
        raise WireError(where, "must be lists of path, mode, secret")
    path, mode, secret = raw
    if not path or "\0" in path or not _DOTS.isdisjoint(path.split("/")):
        raise WireError(where, f"a path must be relative, without dots: {path!r}")
    if not 0 <= mode <= 0o777:
        raise WireError(where, f"a mode must be from 0 to 0777: {path!r}")
    return File(path, content, mode, secret)


def _containers(message: Mapping[str, Any], where: str) -> tuple[tuple[str, str, str], ...]:
    found = list_at(message, "containers", where)
    for entry in found:
        if type(entry) is not list or list(map(type, entry)) != [str, str, str]:
            raise WireError(f"{where}.containers", "must be lists of name, kind, image")
        if entry[1] not in KINDS or not is_label(entry[0]):
            raise WireError(f"{where}.containers", "has a name or kind that no container can have")
    if len({entry[0] for entry in found}) < len(found):
        raise WireError(f"{where}.containers", "has a name twice")
    if not any(kind == MAIN for _, kind, _ in found):
        raise WireError(f"{where}.containers", "must not be without a main container")
    return tuple((name, kind, image) for name, kind, image in found)


# --- delete, query, answers ----------------------------------------------------------------------


def delete(message: Delete) -> dict[str, Any]:
    """The message of a ``Delete``."""
    return {"name": message.job, "grace_period_s": message.grace_period_s}


def read_delete(message: Mapping[str, Any]) -> Delete:
    """The ``Delete`` in a message."""
    with reading():
        name = text_at(message, "name", "delete")
        uid_of(name)
        grace = message.get("grace_period_s")
        if grace is not None:
            grace = count_at(message, "grace_period_s", "delete")
        return Delete(name, grace)


def query(message: Query) -> dict[str, Any]:
    """The message of a ``Query``."""
    return {"jobs": message.jobs, "cursor": message.cursor}


def read_query(message: Mapping[str, Any]) -> Query:
    """The ``Query`` in a message."""
    with reading():
        jobs = (
            tuple(texts_at(message, "jobs", "query")) if message.get("jobs") is not None else None
        )
        return Query(jobs, text_at(message, "cursor", "query"))


def refusal(refused: Refusal) -> dict[str, Any]:
    """The answer that says no."""
    return {"refused": refused._asdict()}


def read_refusal(message: Mapping[str, Any]) -> Optional[Refusal]:
    """The refusal in an answer; None when the request was carried out."""
    if "refused" not in message:
        return None
    where = "answer.refused"
    with reading():
        raw = object_at(message, "refused", "answer")
        code, words = text_at(raw, "code", where), one_line(text_at(raw, "message", where))
        return Refusal(code, words, bool(flag_at(raw, "retry", where)))


def outcomes(answers: Iterable[Union[str, Refusal]]) -> dict[str, Any]:
    """The answer to a create: of each job its state, or why it was refused."""
    return {
        "outcomes": [
            refusal(answer) if isinstance(answer, Refusal) else {"state": answer}
            for answer in answers
        ]
    }


def read_outcomes(message: Mapping[str, Any], count: int) -> list[Optional[Refusal]]:
    """Of each of so many jobs why it was refused; None for those that are journaled."""
    refused = read_refusal(message)
    if refused is not None:
        return [refused] * count
    with reading():
        answers = objects_at(message, "outcomes", "answer")
    if len(answers) != count:
        raise WireError("answer.outcomes", f"must be {count}, one for each job")
    return [read_refusal(answer) for answer in answers]


# --- logs ---------------------------------------------------------------------------------------

LOG_DATA = b"D"  # first byte of a message with log bytes; the last message is JSON


class LogEnd(NamedTuple):
    """The last message of a window."""

    cursor: str  # where the next window goes on
    sent: int  # bytes of log in this window's messages, so that a lost one is noticed
    over: bool  # nothing will follow


def log_request(message: LogRequest) -> dict[str, Any]:
    """The message of a ``LogRequest``."""
    return message._asdict()


def read_log_request(message: Mapping[str, Any]) -> LogRequest:
    """The ``LogRequest`` in a message."""
    where = "logs"
    with reading():
        container = text_at(message, "container", where)
        if not is_label(container):
            raise WireError("logs.container", "cannot be the name of a container")
        job = text_at(message, "job", where)
        uid_of(job)
        return LogRequest(
            job=job,
            container=container,
            cursor=text_at(message, "cursor", where),
            window_bytes=count_at(message, "window_bytes", where, 1),
            wait_s=count_at(message, "wait_s", where),
            follow=bool(flag_at(message, "follow", where)),
            previous=bool(flag_at(message, "previous", where)),
            timestamps=bool(flag_at(message, "timestamps", where)),
            tail=count_at(message, "tail", where, -1) if "tail" in message else -1,
            since_ms=count_at(message, "since_ms", where),
        )


def log_end(message: LogEnd) -> dict[str, Any]:
    """The message of a ``LogEnd``."""
    return message._asdict()


def read_log_end(message: Mapping[str, Any]) -> LogEnd:
    """The ``LogEnd`` in a message."""
    with reading():
        return LogEnd(
            cursor=text_at(message, "cursor", "log"),
            sent=count_at(message, "sent", "log"),
            over=bool(flag_at(message, "over", "log")),
        )
