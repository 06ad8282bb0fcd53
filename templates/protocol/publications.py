"""Publications of submitters: states of jobs, resources of a pool, its build configuration.

The readers are as strict as those of ``messages.py``. The resources keep the shape that
upstream's ``kueue-nats`` reads (``quotas``, ``labels``, ``taints``), with ours beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from templates.common.errors import ConfigError, WireError, one_line
from templates.common.message_fields import CutText, Line, Quantities, Token, token_at
from templates.common.names import is_label, is_resource, uid_of
from templates.common.quantity import at_most, quantities_at
from templates.common.validation import list_at, object_at, objects_at, text_at
from templates.job.records import STATES, TERMINATED
from templates.job.status import KINDS, ContainerStatus, JobStatus
from templates.pod.model import MAIN
from templates.protocol.message_schema import MessageSchema
from templates.protocol.messages import wire_errors
from templates.site.build_config import BuildConfig
from templates.site.schema import from_json, to_json

MOST_RESOURCES = 64  # of a pool, and of its labels and taints: a ClusterQueue covers no more
LONGEST_NAME = 63  # of a resource: queues and nodes have to hold the names of all pools
MOST = 2**53  # of a resource; a thousand times as many thousandths fit into 64 bits


class StatusUpdate(NamedTuple):
    """States of a pool's jobs: a publication, or a page of the answer to a query.

    Every process numbers its publications, so that a reader notices when it missed one; one
    without states repeats the number of the last one that had some.
    """

    pool: str
    instance: Token  # of the publishing process, new at each of its starts
    number: int
    jobs: int  # how many it has
    states: tuple[JobStatus, ...]
    gone: tuple[str, ...]  # jobs that the site no longer has
    cursor: CutText = ""  # of a page: where the next one begins; empty after the last one


class Resources(NamedTuple):
    """Resources that a pool offers."""

    pool: str  # of the subject; older submitters do not write it
    quotas: Quantities  # resource name -> quantity, as Kubernetes writes them
    labels: tuple[str, ...] = ()  # key=value
    taints: tuple[str, ...] = ()  # key=value:effect
    draining: bool = False  # no more jobs are taken
    interval_s: int = 0  # how often this is published; 0: unknown
    trouble: Line = ""  # why its batch system cannot be queried; the rest is its last answer
    left_out: str = ""  # what of its resources does not count, and why: said by the reader


class Config(NamedTuple):
    """Build configuration of a pool."""

    pool: str
    digest: str
    build: BuildConfig


_STATUS = MessageSchema(JobStatus, "status")
_STATUS_UPDATE = MessageSchema(StatusUpdate, "statuses", given=("states",))
_RESOURCES = MessageSchema(Resources, "resources", given=("quotas", "left_out"))


# --- states -------------------------------------------------------------------------------------


def dump_status(status: JobStatus) -> bytes:
    """Return a status as JSON."""
    return json.dumps(_STATUS.write(status), separators=(",", ":")).encode()


def read_status(raw: Mapping[str, Any]) -> JobStatus:
    """Return the status in what ``dump_status`` made."""
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


def dump_status_update(header: StatusUpdate, dumped: list[bytes]) -> bytes:
    """Return the JSON of a publication or a page, around states that were dumped before."""
    fields = header._asdict()
    del fields["states"]
    text = json.dumps({"v": 1, **fields}, separators=(",", ":")).encode()
    return b"".join((text[:-1], b',"states":[', b",".join(dumped), b"]}"))


def read_status_update(message: Mapping[str, Any], pool: str) -> StatusUpdate:
    """Return the states in a message of this pool."""
    with wire_errors():
        if text_at(message, "pool", "statuses") != pool:
            raise WireError("statuses.pool", f"is not {pool}, which the subject names")
        states = tuple(map(read_status, objects_at(message, "states", "statuses")))
        return _STATUS_UPDATE.read({**message, "states": states})


# --- resources ----------------------------------------------------------------------------------


def write_resources(offer: Resources) -> dict[str, Any]:
    """Return the message of a pool's resources."""
    fields = offer._asdict()
    del fields["left_out"]
    return fields


def read_resources(message: Mapping[str, Any], pool: str) -> Resources:
    """Return a pool's resources; quantities may be numbers, and older submitters name no pool.

    They become part of objects that all pools share. So a name that Kubernetes refuses there is
    left out, as are more names than a pool may have; no amount is beyond what can be added to.
    """
    with wire_errors():
        offered = quantities_at(message, "quotas", "resources")
        for key in ("labels", "taints"):
            if len(list_at(message, key, "resources")) > MOST_RESOURCES:
                raise WireError(f"resources.{key}", f"must be at most {MOST_RESOURCES}")
        named = [name for name in offered if is_resource(name) and len(name) <= LONGEST_NAME]
        given = {
            "pool": pool,
            "quotas": {name: at_most(offered[name], MOST) for name in named[:MOST_RESOURCES]},
            "left_out": _left_out([*offered.keys() - set(named)], named[MOST_RESOURCES:]),
        }
        return _RESOURCES.read({**message, **given})


def _left_out(foreign: list[str], beyond: list[str]) -> str:
    """Return in one line which resources do not count, and why."""
    said = []
    if foreign:
        rule = f"no names of resources, of at most {LONGEST_NAME} characters"
        said.append(f"{_some(sorted(foreign))} ({rule})")
    if beyond:
        said.append(f"{_some(beyond)} (a pool may offer {MOST_RESOURCES} resources)")
    return f"left out: {'; '.join(said)}" if said else ""


def _some(names: list[str]) -> str:
    shown = ", ".join([one_line(name, 80) or "''" for name in names[:5]])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


# --- build configuration ------------------------------------------------------------------------


def write_config(pool: str, build: BuildConfig) -> dict[str, Any]:
    """Return the message of a pool's build configuration."""
    raw = to_json(build)
    text = json.dumps(raw, sort_keys=True, separators=(",", ":"))
    return {"pool": pool, "digest": hashlib.sha256(text.encode()).hexdigest()[:16], "build": raw}


def read_config(message: Mapping[str, Any], pool: str) -> Config:
    """Return the build configuration of this pool in a message."""
    with wire_errors():
        digest = token_at(message, "digest", "config")
        raw = object_at(message, "build", "config")
    try:
        return Config(pool, digest, from_json(raw))
    except ConfigError as error:
        raise WireError(f"config of {pool}: {error.field}", one_line(error.reason)) from None
