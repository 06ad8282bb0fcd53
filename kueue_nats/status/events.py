"""Kubernetes Events of a MasterQueue, from the changes of its status."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kueue_nats.plan.planner import LOST, UNUSED
from kueue_nats.spec.masterqueue import GROUP, KIND, VERSION
from kueue_nats.spec.settings import PROGRAM
from kueue_nats.status.status import READY, timestamp
from templates.common.errors import one_line

NORMAL, WARNING = "Normal", "Warning"

Json = Mapping[str, Any]


class Event(NamedTuple):
    """Event, without its times."""

    kind: str
    reason: str
    message: str


def status_events(before: Json, after: Json) -> Iterator[Event]:
    """Yield the Events of a change of status, for readers of ``kubectl describe``."""
    earlier = {(e.get("flavor"), e.get("name")): e for e in before.get("pools") or ()}
    later = {(e["flavor"], e["name"]): e for e in after.get("pools") or ()}
    for key, entry in later.items():
        old = earlier.get(key, {}).get("state")
        if entry["state"] != old and not (old is None and entry["state"] == LOST):
            yield _of_pool(entry)
    for _, name in earlier.keys() - later.keys():
        yield Event(NORMAL, "PoolForgotten", f"pool {name} is not one of its pools any more")
    was, now = _ready(before), _ready(after)
    if now and was.get("reason") != now.get("reason"):
        kind = NORMAL if now["status"] == "True" else WARNING
        yield Event(kind, now["reason"], now["message"])


def event_body(event: Event, master: Json, now: float) -> dict[str, Any]:
    """Return an Event as the Kubernetes API wants it."""
    metadata = master["metadata"]
    about = {"kind": KIND, "apiVersion": f"{GROUP}/{VERSION}"}
    about.update({key: metadata[key] for key in ("name", "uid", "resourceVersion")})
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][:200].rstrip('.-')}.{uuid.uuid4().hex[:16]}",
            "namespace": "default",
        },
        "involvedObject": about,
        "type": event.kind,
        "reason": event.reason,
        "message": one_line(event.message, 1000),
        "source": {"component": PROGRAM},
        "reportingComponent": PROGRAM,
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }


def _of_pool(entry: Json) -> Event:
    state, name = entry["state"], f"pool {entry['name']} ({entry['flavor']})"
    offered = ", ".join(f"{key} {value}" for key, value in (entry.get("effective") or {}).items())
    message = entry.get("message") or (f"offers {offered}" if offered else state)
    return Event(
        NORMAL if state not in (LOST, UNUSED) else WARNING, f"Pool{state}", f"{name}: {message}"
    )


def _ready(status: Json) -> Json:
    return next((c for c in status.get("conditions") or () if c.get("type") == READY), {})
