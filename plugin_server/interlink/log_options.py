"""Log options in interLink's requests."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, NamedTuple

from plugin_server.common.errors import Malformed
from plugin_server.interlink.requests import decode
from templates.common.errors import PodRejected
from templates.common.names import check_uid, is_label, job_name
from templates.common.validation import flag_at, object_at, text_at

_NO_TIME = "0001-01-01T00:00:00Z"  # Go's zero time
MAX_COUNT = 2**63 - 1


class LogOptions(NamedTuple):
    """Container whose log is requested, and how much of it."""

    namespace: str
    uid: str
    job: str
    container: str
    tail: int  # lines; -1: all
    limit: int  # bytes; 0: no limit
    timestamps: bool
    follow: bool
    previous: bool
    since_ms: int


def read_log_options(body: bytes, now_ms: int) -> LogOptions:
    """Return the options in a request; raises ``Malformed``."""
    raw = decode(body)
    if type(raw) is not dict:
        raise Malformed("the request must be an object")
    try:
        return _options_of(raw, now_ms)
    except PodRejected as error:
        raise Malformed(str(error)) from None


def _options_of(raw: Mapping[str, Any], now_ms: int) -> LogOptions:
    uid = check_uid("PodUID", raw.get("PodUID"))
    container = text_at(raw, "ContainerName", "request")
    if not is_label(container):
        raise PodRejected("ContainerName", "cannot be the name of a container")
    namespace = text_at(raw, "Namespace", "request")
    if namespace and not is_label(namespace):
        raise PodRejected("Namespace", "cannot be the name of a namespace")
    options = object_at(raw, "Opts", "request")
    tail, seconds = (_read_count(options, key) for key in ("Tail", "SinceSeconds"))
    since_ms = _time_ms(text_at(options, "SinceTime", "Opts"))
    if seconds:
        since_ms = max(now_ms - seconds * 1000, 0)
    return LogOptions(
        namespace=namespace,
        uid=uid,
        job=job_name(text_at(raw, "PodName", "request"), uid),
        container=container,
        tail=tail or -1,
        limit=_read_count(options, "Bytes"),
        timestamps=bool(flag_at(options, "Timestamps", "Opts")),
        follow=bool(flag_at(options, "Follow", "Opts")),
        previous=bool(flag_at(options, "Previous", "Opts")),
        since_ms=since_ms,
    )


def _read_count(options: Mapping[str, Any], key: str) -> int:
    value = options.get(key) or 0
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise PodRejected(f"Opts.{key}", "must be a whole number of at least 0")
    return value


def _time_ms(text: str) -> int:
    if text in ("", _NO_TIME):
        return 0
    try:
        when = datetime.datetime.fromisoformat(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=datetime.timezone.utc)
        return max(int(when.timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise PodRejected("Opts.SinceTime", "is not a time of RFC 3339") from None
