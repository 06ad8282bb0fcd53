"""What submitters publish: the states of jobs, what a pool offers, how scripts are built for it.

The readers are as distrustful as those of ``messages.py``. The resources keep the shape that
upstream's ``kueue-nats`` reads (``quotas``, ``labels``, ``taints``), with ours beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from templates.common.errors import ConfigError, WireError, one_line
from templates.common.message_fields import Line, Quantities, Token, token_at
from templates.common.names import is_label, uid_of
from templates.common.validation import object_at, objects_at, text_at
from templates.job.records import STATES, TERMINATED
from templates.job.status import KINDS, ContainerStatus, JobStatus
from templates.pod.model import MAIN
from templates.protocol.message_schema import MessageSchema
from templates.protocol.messages import reading
from templates.site.build_config import BuildConfig
from templates.site.schema import from_json, to_json


class Statuses(NamedTuple):
    """States of a pool's jobs: a publication, or a page of the answer to a query.

    Every process numbers its publications, so that a reader notices when it missed one; one
    without states repeats the number of the last one that had some.
    """

    pool: str
    instance: Token  # of the process that speaks, new at each of its starts
    number: int
    jobs: int  # how many it knows
    states: tuple[JobStatus, ...]
    gone: tuple[str, ...]  # jobs that the site no longer has
    cursor: str = ""  # of a page: where the next one begins; empty after the last one


class Resources(NamedTuple):
    """What a pool offers."""

    pool: str  # of the subject; older submitters do not write it
    quotas: Quantities  # resource name -> quantity, as Kubernetes writes them
    labels: tuple[str, ...] = ()  # key=value
    taints: tuple[str, ...] = ()  # key=value:effect
    draining: bool = False  # no more jobs are taken
    interval_s: int = 0  # how often this is published; 0: not said
    trouble: Line = ""  # why its batch system cannot be asked; the rest is what it last said


class Config(NamedTuple):
    """How scripts are built for a pool."""

    pool: str
    digest: str
    build: BuildConfig


_STATUS = MessageSchema(JobStatus, "status")
_STATUSES = MessageSchema(Statuses, "statuses", given=("states",))
_RESOURCES = MessageSchema(Resources, "resources")


# --- states -------------------------------------------------------------------------------------


def dump_status(status: JobStatus) -> bytes:
    """Return a status as JSON."""
    return json.dumps(_STATUS.write(status), separators=(",", ":")).encode()


def read_status(raw: Mapping[str, Any]) -> JobStatus:
    """Return the status in what ``dump_status`` made."""
    with reading():
        return _read_status(raw)


def _read_status(raw: Mapping[str, Any]) -> JobStatus:
    status = _STATUS.read(raw)
    uid = uid_of(status.job)
    for entry in status.containers:
        _check_container(entry)
    if len({entry.state.name for entry in status.containers}) < len(status.containers):
        raise WireError("status.containers", "has a name twice")
    if not any(entry.kind == MAIN for entry in status.containers):
        raise WireError("status.containers", "must not be without a main container")
    return status if status.uid == uid else status._replace(uid=uid)


def _check_container(entry: ContainerStatus) -> None:
    state = entry.state
    if not is_label(state.name) or entry.kind not in KINDS or state.state not in STATES:
        where = "status.containers"
        raise WireError(where, "has a name, kind or state that no container can have")
    if (state.state == TERMINATED) != (state.end is not None):
        raise WireError("status.containers", "must have an end exactly if terminated")


def statuses(header: Statuses, dumped: list[bytes]) -> bytes:
    """The JSON of a publication or a page, around states that were dumped before."""
    fields = header._asdict()
    del fields["states"]
    text = json.dumps({"v": 1, **fields}, separators=(",", ":")).encode()
    return b"".join((text[:-1], b',"states":[', b",".join(dumped), b"]}"))


def read_statuses(message: Mapping[str, Any], pool: str) -> Statuses:
    """The states in a message that came from this pool."""
    with reading():
        if text_at(message, "pool", "statuses") != pool:
            raise WireError("statuses.pool", f"is not {pool}, which the subject names")
        states = tuple(map(_read_status, objects_at(message, "states", "statuses")))
        return _STATUSES.read({**message, "states": states})


# --- resources ----------------------------------------------------------------------------------


def resources(offer: Resources) -> dict[str, Any]:
    """The message of what a pool offers."""
    return offer._asdict()


def read_resources(message: Mapping[str, Any], pool: str) -> Resources:
    """What a pool offers; quantities may be numbers, and older submitters name no pool."""
    with reading():
        return _RESOURCES.read({**message, "pool": pool})


# --- build configuration ------------------------------------------------------------------------


def config(pool: str, build: BuildConfig) -> dict[str, Any]:
    """The message of how scripts are built for a pool."""
    raw = to_json(build)
    text = json.dumps(raw, sort_keys=True, separators=(",", ":"))
    return {"pool": pool, "digest": hashlib.sha256(text.encode()).hexdigest()[:16], "build": raw}


def read_config(message: Mapping[str, Any], pool: str) -> Config:
    """The build configuration of this pool in a message."""
    with reading():
        digest = token_at(message, "digest", "config")
        raw = object_at(message, "build", "config")
    try:
        return Config(pool, digest, from_json(raw))
    except ConfigError as error:
        raise WireError(f"config of {pool}: {error.where}", one_line(error.what)) from None
