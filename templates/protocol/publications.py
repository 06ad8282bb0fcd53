"""What submitters publish: the states of jobs, what a pool offers, how scripts are built for it.

The readers are as distrustful as those of ``messages.py``. The resources keep the shape that
upstream's ``kueue-nats`` reads (``quotas``, ``labels``, ``taints``), with ours beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from templates.common.errors import ConfigError, WireError, one_line
from templates.common.names import check_token, is_label, uid_of
from templates.common.quantity import quantities_at
from templates.common.validation import flag_at, list_at, object_at, objects_at, text_at, texts_at
from templates.job.records import RUNNING, TERMINATED, WAITING, ContainerState, End
from templates.job.status import KINDS, PHASES, ContainerStatus, JobStatus, Version
from templates.pod.model import MAIN
from templates.protocol.messages import LARGEST_NUMBER, count_at, reading
from templates.site.build_config import BuildConfig
from templates.site.schema import from_json, to_json


class Statuses(NamedTuple):
    """States of a pool's jobs: a publication, or a page of the answer to a query.

    Every process numbers its publications, so that a reader notices when it missed one; one
    without states repeats the number of the last one that had some.
    """

    pool: str
    instance: str  # of the process that speaks, new at each of its starts
    number: int
    jobs: int  # how many it knows
    states: tuple[JobStatus, ...]
    gone: tuple[str, ...]  # jobs that the site no longer has
    cursor: str = ""  # of a page: where the next one begins; empty after the last one


class Resources(NamedTuple):
    """What a pool offers."""

    pool: str
    quotas: Mapping[str, str]  # resource name -> quantity, as Kubernetes writes them
    labels: tuple[str, ...] = ()  # key=value
    taints: tuple[str, ...] = ()  # key=value:effect
    draining: bool = False  # no more jobs are taken
    interval_s: int = 0  # how often this is published; 0: not said
    trouble: str = ""  # why its batch system cannot be asked; the rest is what it last said


class Config(NamedTuple):
    """How scripts are built for a pool."""

    pool: str
    digest: str
    build: BuildConfig


# --- states -------------------------------------------------------------------------------------


def dump_status(status: JobStatus) -> bytes:
    """A status as JSON; what is empty is left out."""
    message = {key: value for key, value in status._asdict().items() if value or value is None}
    message["version"] = list(status.version)
    message["containers"] = [_dump_container(entry) for entry in status.containers]
    return json.dumps(message, separators=(",", ":")).encode()


def _dump_container(entry: ContainerStatus) -> dict[str, Any]:
    state = entry.state
    message: dict[str, Any] = {k: v for k, v in state._asdict().items() if v}
    message.update(kind=entry.kind, image=entry.image)
    for key, end in (("end", state.end), ("last_end", state.last_end)):
        if end is not None:
            message[key] = {k: v for k, v in end._asdict().items() if v}
    return message


def read_status(raw: Mapping[str, Any]) -> JobStatus:
    """The status in what ``dump_status`` made."""
    where = "status"
    with reading():
        job = text_at(raw, "job", where)
        uid = uid_of(job)
        phase = text_at(raw, "phase", where)
        if phase not in PHASES:
            raise WireError("status.phase", f"must be one of {', '.join(PHASES)}")
        containers = tuple(map(_read_container, objects_at(raw, "containers", where)))
        if len({entry.state.name for entry in containers}) < len(containers):
            raise WireError("status.containers", "has a name twice")
        if not any(entry.kind == MAIN for entry in containers):
            raise WireError("status.containers", "must not be without a main container")
        return JobStatus(
            job=job,
            uid=uid,
            namespace=text_at(raw, "namespace", where),
            pod=text_at(raw, "pod", where),
            version=_read_version(raw),
            phase=phase,
            native=text_at(raw, "native", where),
            node=text_at(raw, "node", where),
            reason=text_at(raw, "reason", where),
            message=text_at(raw, "message", where),
            started_ms=count_at(raw, "started_ms", where),
            finished_ms=count_at(raw, "finished_ms", where),
            exit_code=_exit_code(raw, where),
            deleting=bool(flag_at(raw, "deleting", where)),
            containers=containers,
            origin=text_at(raw, "origin", where),
        )


def _read_version(raw: Mapping[str, Any]) -> Version:
    version = list_at(raw, "version", "status")
    whole = list(map(type, version)) == [int, int, int]
    if not whole or not all(0 <= number <= LARGEST_NUMBER for number in version):
        raise WireError("status.version", "must be three whole numbers")
    return Version(*version)


def _exit_code(raw: Mapping[str, Any], where: str) -> int:
    code = raw.get("exit_code", 0)
    if type(code) is not int or not -(2**31) <= code < 2**31:
        raise WireError(f"{where}.exit_code", "must be a whole number of 32 bits")
    return code


def _read_container(raw: Mapping[str, Any]) -> ContainerStatus:
    where = "status.containers"
    name, kind, state = (text_at(raw, key, where) for key in ("name", "kind", "state"))
    if not is_label(name) or kind not in KINDS or state not in (WAITING, RUNNING, TERMINATED):
        raise WireError(where, "has a name, kind or state that no container can have")
    end, last_end = _read_end(raw, "end"), _read_end(raw, "last_end")
    if (state == TERMINATED) != (end is not None):
        raise WireError(where, "must have an end exactly if terminated")
    return ContainerStatus(
        kind,
        text_at(raw, "image", where),
        ContainerState(
            name=name,
            state=state,
            reason=text_at(raw, "reason", where),
            message=text_at(raw, "message", where),
            started_ms=count_at(raw, "started_ms", where),
            begun=bool(flag_at(raw, "begun", where)),
            ready=bool(flag_at(raw, "ready", where)),
            restarts=count_at(raw, "restarts", where),
            end=end,
            last_end=last_end,
        ),
    )


def _read_end(holder: Mapping[str, Any], key: str) -> Optional[End]:
    if holder.get(key) is None:
        return None
    where = f"status.containers.{key}"
    raw = object_at(holder, key, "status.containers")
    return End(
        exit_code=_exit_code(raw, where),
        signal=count_at(raw, "signal", where),
        reason=text_at(raw, "reason", where),
        message=text_at(raw, "message", where),
        started_ms=count_at(raw, "started_ms", where),
        finished_ms=count_at(raw, "finished_ms", where),
    )


def statuses(header: Statuses, dumped: list[bytes]) -> bytes:
    """The JSON of a publication or a page, around states that were dumped before."""
    fields = header._asdict()
    del fields["states"]
    text = json.dumps({"v": 1, **fields}, separators=(",", ":")).encode()
    return b"".join((text[:-1], b',"states":[', b",".join(dumped), b"]}"))


def read_statuses(message: Mapping[str, Any], pool: str) -> Statuses:
    """The states in a message that came from this pool."""
    where = "statuses"
    with reading():
        if text_at(message, "pool", where) != pool:
            raise WireError("statuses.pool", f"is not {pool}, which the subject names")
        return Statuses(
            pool=pool,
            instance=check_token("statuses.instance", message.get("instance"), WireError),
            number=count_at(message, "number", where),
            jobs=count_at(message, "jobs", where),
            states=tuple(map(read_status, objects_at(message, "states", where))),
            gone=tuple(texts_at(message, "gone", where)),
            cursor=text_at(message, "cursor", where),
        )


# --- resources ----------------------------------------------------------------------------------


def resources(offer: Resources) -> dict[str, Any]:
    """The message of what a pool offers."""
    return offer._asdict()


def read_resources(message: Mapping[str, Any], pool: str) -> Resources:
    """What a pool offers; quantities may be numbers, and older submitters name no pool."""
    where = "resources"
    with reading():
        return Resources(
            pool=pool,
            quotas=quantities_at(message, "quotas", where),
            labels=tuple(texts_at(message, "labels", where)),
            taints=tuple(texts_at(message, "taints", where)),
            draining=bool(flag_at(message, "draining", where)),
            interval_s=count_at(message, "interval_s", where),
            trouble=one_line(text_at(message, "trouble", where)),
        )


# --- build configuration ------------------------------------------------------------------------


def config(pool: str, build: BuildConfig) -> dict[str, Any]:
    """The message of how scripts are built for a pool."""
    raw = to_json(build)
    text = json.dumps(raw, sort_keys=True, separators=(",", ":"))
    return {"pool": pool, "digest": hashlib.sha256(text.encode()).hexdigest()[:16], "build": raw}


def read_config(message: Mapping[str, Any], pool: str) -> Config:
    """The build configuration of this pool in a message."""
    with reading():
        digest = check_token("config.digest", message.get("digest"), WireError)
        raw = object_at(message, "build", "config")
    try:
        return Config(pool, digest, from_json(raw))
    except ConfigError as error:
        raise WireError(f"config of {pool}: {error.where}", one_line(error.what)) from None
