"""What our programs say to each other, and the JSON in which they say it.

Every reader checks what it reads: the other end may be a newer version, or a liar. Unknown fields
are ignored, so that a message can grow; a missing or wrong one is a ``WireError`` that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple, Optional, Union

from templates.common.errors import PodRejected, WireError
from templates.common.message_fields import CountOrAll, Line, Positive
from templates.common.names import is_label, uid_of
from templates.common.validation import list_at, object_at, objects_at, text_at
from templates.job.model import File, Job, split_script
from templates.job.status import KINDS
from templates.nats.codec import ATTACHMENTS
from templates.pod.model import MAIN
from templates.protocol.message_schema import MessageSchema

# Why a request was refused. None of them leaves anything behind at the site.
MALFORMED = "malformed"  # the request is not what it should be: a bug, or a newer version
FORBIDDEN = "forbidden"  # the site's policy, or the batch system, says no
DELETED = "deleted"  # the pod's deletion came before its creation
UNAVAILABLE = "unavailable"  # the site cannot take it now: full disk, draining, ...
UNKNOWN = "unknown"  # there is no such job, or no such container

# What a delete found.
CANCELLING = "cancelling"
GONE = "gone"

_DOTS = frozenset(("", ".", ".."))  # what no part of a relative path may be


class Refusal(NamedTuple):
    """The answer to a request that was not carried out."""

    code: str
    message: Line
    retry: bool  # whether the same request may succeed later


class Delete(NamedTuple):
    """End a job and remove what it left."""

    name: str  # of the job
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
    window_bytes: Positive
    wait_s: int  # how long to wait for something to say, when following
    follow: bool
    previous: bool
    timestamps: bool
    tail: CountOrAll
    since_ms: int


class LogEnd(NamedTuple):
    """The last message of a window."""

    cursor: str  # where the next window goes on
    sent: int  # bytes of log in this window's messages, so that a lost one is noticed
    over: bool  # nothing will follow


_JOB = MessageSchema(Job, "create", given=("script", "files", "containers"))
_DELETE = MessageSchema(Delete, "delete")
_QUERY = MessageSchema(Query, "query")
_REFUSAL = MessageSchema(Refusal, "answer.refused")
_LOG_REQUEST = MessageSchema(LogRequest, "logs")
_LOG_END = MessageSchema(LogEnd, "log")


@contextmanager
def reading() -> Iterator[None]:
    """What the shared field readers refuse here is a message, not a pod."""
    try:
        yield
    except PodRejected as error:
        raise WireError(error.where, error.what) from None


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
    with reading():
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


def delete(message: Delete) -> dict[str, Any]:
    """The message of a ``Delete``."""
    return message._asdict()


def read_delete(message: Mapping[str, Any]) -> Delete:
    """The ``Delete`` in a message."""
    with reading():
        wish = _DELETE.read(message)
        uid_of(wish.name)
        return wish


def query(message: Query) -> dict[str, Any]:
    """The message of a ``Query``."""
    return message._asdict()


def read_query(message: Mapping[str, Any]) -> Query:
    """The ``Query`` in a message."""
    with reading():
        return _QUERY.read(message)


def refusal(refused: Refusal) -> dict[str, Any]:
    """The answer that says no."""
    return {"refused": refused._asdict()}


def read_refusal(message: Mapping[str, Any]) -> Optional[Refusal]:
    """The refusal in an answer; None when the request was carried out."""
    if "refused" not in message:
        return None
    with reading():
        return _REFUSAL.read(object_at(message, "refused", "answer"))


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


def log_request(message: LogRequest) -> dict[str, Any]:
    """The message of a ``LogRequest``."""
    return message._asdict()


def read_log_request(message: Mapping[str, Any]) -> LogRequest:
    """The ``LogRequest`` in a message."""
    with reading():
        wanted = _LOG_REQUEST.read(message)
        if not is_label(wanted.container):
            raise WireError("logs.container", "cannot be the name of a container")
        uid_of(wanted.job)
        return wanted


def log_end(message: LogEnd) -> dict[str, Any]:
    """The message of a ``LogEnd``."""
    return message._asdict()


def read_log_end(message: Mapping[str, Any]) -> LogEnd:
    """The ``LogEnd`` in a message."""
    with reading():
        return _LOG_END.read(message)
