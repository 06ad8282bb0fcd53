"""Requests and answers between our programs, and their JSON.

Every reader checks what it reads: the other end may be a newer version, or malicious. Unknown
fields are ignored, so that a message can grow; a wrong one is a ``WireError`` that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple, Optional, Union

from templates.common.errors import PodRejected, WireError
from templates.common.message_fields import CountOrAll, CutText, Line, Positive
from templates.common.names import is_label, uid_of
from templates.common.validation import list_at, object_at, objects_at, text_at
from templates.job.model import File, Job, split_script
from templates.job.status import KINDS
from templates.nats.codec import ATTACHMENTS
from templates.pod.model import MAIN
from templates.protocol.message_schema import MessageSchema

# Why a request was refused. None of them leaves anything behind at the site.
MALFORMED = "malformed"  # the request cannot be read: a bug, or a newer version
FORBIDDEN = "forbidden"  # by the site's policy, or by the batch system
DELETED = "deleted"  # the pod's deletion came before its creation
UNAVAILABLE = "unavailable"  # the site cannot take it now: full disk, draining, ...
UNKNOWN = "unknown"  # there is no such job, or no such container

# The states in the answer to a delete.
CANCELLING = "cancelling"
GONE = "gone"

_DOTS = frozenset(("", ".", ".."))  # forbidden as parts of a relative path


class Refusal(NamedTuple):
    """Answer to a request that was not carried out."""

    code: str
    message: Line
    retry: bool  # whether the same request may succeed later


class Delete(NamedTuple):
    """Request to end a job and remove its files."""

    name: str  # of the job
    grace_period_s: Optional[int]  # None: the job's own


class Query(NamedTuple):
    """Request for states: of some jobs, or of all of them, one page after the other."""

    jobs: Optional[tuple[str, ...]]
    cursor: str = ""


class LogRequest(NamedTuple):
    """Request for a window of a container's log, which begins at a cursor."""

    job: str
    container: str
    cursor: str  # empty: the options below say where to begin
    window_bytes: Positive
    wait_s: int  # how long to wait for more of the log, when following
    follow: bool
    previous: bool
    timestamps: bool
    tail: CountOrAll
    since_ms: int


class LogEnd(NamedTuple):
    """Last message of a window."""

    cursor: CutText  # where the next window goes on
    sent: int  # bytes of log in this window's messages, so that a lost one is noticed
    over: bool  # nothing will follow


_JOB = MessageSchema(Job, "create", given=("script", "files", "containers"))
_DELETE = MessageSchema(Delete, "delete")
_QUERY = MessageSchema(Query, "query")
_REFUSAL = MessageSchema(Refusal, "answer.refused")
_LOG_REQUEST = MessageSchema(LogRequest, "logs")
_LOG_END = MessageSchema(LogEnd, "log")


@contextmanager
def wire_errors() -> Iterator[None]:
    """Raise errors of the shared field readers as ``WireError``: this is no pod."""
    try:
        yield
    except PodRejected as error:
        raise WireError(error.field, error.reason) from None


# --- create -------------------------------------------------------------------------------------


def write_create(jobs: Iterable[Job]) -> dict[str, Any]:
    """Return the message with jobs to run; scripts and contents of files are attachments."""
    described: list[dict[str, Any]] = []
    attached: list[bytes] = []
    for job in jobs:
        described.append(describe(job))
        attached += [half.encode() for half in split_script(job.script)]
        attached += [file.content for file in job.files]
    return {"jobs": described, ATTACHMENTS: attached}


def read_create(message: Mapping[str, Any]) -> list[Union[Job, WireError]]:
    """Return the jobs in a create message in the sender's order, or the error of each."""
    with wire_errors():
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
    """Return a job as JSON, without its script and the contents of its files."""
    described = job._asdict()
    del described["script"]
    described["gpus"] = dict(job.gpus)
    described["other_resources"] = dict(job.other_resources)
    described["annotations"] = dict(job.annotations)
    described["files"] = [(file.path, file.mode, file.secret) for file in job.files]
    return described


def read_job(message: Mapping[str, Any], script: bytes, contents: Sequence[bytes]) -> Job:
    """Return the job that ``describe`` wrote, with its script and the contents of its files."""
    with wire_errors():
        if uid_of(text_at(message, "name", "create")) != text_at(message, "uid", "create"):
            raise WireError("create.uid", "is not that of the job's name")
        given = {
            "script": _read_script(script),
            "files": _read_files(list_at(message, "files", "create"), contents),
            "containers": _read_containers(list_at(message, "containers", "create")),
        }
        return _JOB.read({**message, **given})


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


def _read_containers(found: list[Any]) -> tuple[tuple[str, str, str], ...]:
    where = "create.containers"
    for entry in found:
        if type(entry) is not list or list(map(type, entry)) != [str, str, str]:
            raise WireError(where, "must be lists of name, kind, image")
        if entry[1] not in KINDS or not is_label(entry[0]):
            raise WireError(where, "has a name or kind that no container can have")
    if len({entry[0] for entry in found}) < len(found):
        raise WireError(where, "has a name twice")
    if not any(kind == MAIN for _, kind, _ in found):
        raise WireError(where, "must not be without a main container")
    return tuple((name, kind, image) for name, kind, image in found)


# --- delete, query, answers ----------------------------------------------------------------------


def write_delete(message: Delete) -> dict[str, Any]:
    """Return the message of a ``Delete``."""
    return message._asdict()


def read_delete(message: Mapping[str, Any]) -> Delete:
    """Return the ``Delete`` in a message."""
    with wire_errors():
        delete = _DELETE.read(message)
        uid_of(delete.name)
        return delete


def write_query(message: Query) -> dict[str, Any]:
    """Return the message of a ``Query``."""
    return message._asdict()


def read_query(message: Mapping[str, Any]) -> Query:
    """Return the ``Query`` in a message."""
    with wire_errors():
        return _QUERY.read(message)


def write_refusal(refusal: Refusal) -> dict[str, Any]:
    """Return the answer of a ``Refusal``."""
    return {"refused": refusal._asdict()}


def read_refusal(message: Mapping[str, Any]) -> Optional[Refusal]:
    """Return the refusal in an answer; None if the request was carried out."""
    if "refused" not in message:
        return None
    with wire_errors():
        return _REFUSAL.read(object_at(message, "refused", "answer"))


def write_outcomes(answers: Iterable[Union[str, Refusal]]) -> dict[str, Any]:
    """Return the answer to a create: of each job its state, or the refusal."""
    return {
        "outcomes": [
            write_refusal(answer) if isinstance(answer, Refusal) else {"state": answer}
            for answer in answers
        ]
    }


def read_outcomes(message: Mapping[str, Any], count: int) -> list[Optional[Refusal]]:
    """Return the refusal of each of ``count`` jobs; None for those that are journaled."""
    refusal = read_refusal(message)
    if refusal is not None:
        return [refusal] * count
    with wire_errors():
        answers = objects_at(message, "outcomes", "answer")
    if len(answers) != count:
        raise WireError("answer.outcomes", f"must be {count}, one for each job")
    return [read_refusal(answer) for answer in answers]


# --- logs ---------------------------------------------------------------------------------------

LOG_DATA = b"D"  # first byte of a message with log bytes; the last message is JSON


def write_log_request(message: LogRequest) -> dict[str, Any]:
    """Return the message of a ``LogRequest``."""
    return message._asdict()


def read_log_request(message: Mapping[str, Any]) -> LogRequest:
    """Return the ``LogRequest`` in a message."""
    with wire_errors():
        request = _LOG_REQUEST.read(message)
        if not is_label(request.container):
            raise WireError("logs.container", "cannot be the name of a container")
        uid_of(request.job)
        return request


def write_log_end(message: LogEnd) -> dict[str, Any]:
    """Return the message of a ``LogEnd``."""
    return message._asdict()


def read_log_end(message: Mapping[str, Any]) -> LogEnd:
    """Return the ``LogEnd`` in a message."""
    with wire_errors():
        return _LOG_END.read(message)
