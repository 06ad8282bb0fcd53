"""What each of our users may publish and hear at the NATS server, and the server's words for it.

Only what is listed is allowed. A site is confined to its own pools and its own inbox; it answers
only where a message to one of its pools has asked for an answer. See ``subjects.py`` for why nobody
may both publish and subscribe to the same subject.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from templates import subjects
from templates.subjects import ANY, subject

PLUGIN = "plugin"
KUEUE = "kueue"
OPERATOR = "operator"
ROLES = (PLUGIN, KUEUE, OPERATOR)

ANSWERS_S = 120  # how long an answer may follow
MOST_ANSWERS = 512  # messages in one answer: a window of a log; any other answer is one message


class Permissions(NamedTuple):
    """What one user may do; a subscription with a queue group is ``<subject> <group>``."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: int = 0  # messages that may answer one that came in


def inbox_of(user: str) -> str:
    """What all inboxes of a user begin with; nobody else may listen there."""
    return f"_INBOX_{user}"


def bucket_of(site: str) -> str:
    """The bucket of the key-value store that a site may have; made by the server's admin."""
    return f"tokens-{site}"


def key_of_bucket(bucket: str, key: str) -> str:
    """Where the value of a key is published."""
    return f"$KV.{bucket}.{key}"


def question_to_bucket(bucket: str) -> str:
    """Where the last value of a key is asked for."""
    return f"$JS.API.STREAM.MSG.GET.KV_{bucket}"


def of_site(root: str, site: str, pools: Iterable[str], bucket: str = "") -> Permissions:
    """A site's submitter: it serves its pools, and speaks for nobody else."""
    publish: list[str] = []
    subscribe = [subject(root, subjects.HELLO), f"{inbox_of(site)}.>"]
    for pool in pools:
        spoken = (subjects.CONFIG, subjects.RESOURCES, subjects.STATUS)
        publish += [subject(root, kind, pool) for kind in spoken]
        publish.append(subject(root, subjects.REQUEST_PARTS, pool, ANY))
        shared = (subjects.CREATE, subjects.DELETE, subjects.LOGS, subjects.QUERY)
        subscribe += [f"{subject(root, kind, pool, ANY)} {pool}" for kind in shared]
        subscribe.append(subject(root, subjects.ANSWER_PARTS, pool, ANY))
        subscribe.append(subject(root, subjects.SHUTDOWN, pool))
    if bucket:
        publish += [key_of_bucket(bucket, ANY), question_to_bucket(bucket)]
    return Permissions(tuple(publish), tuple(subscribe), MOST_ANSWERS)


def of_role(root: str, role: str) -> Permissions:
    """One of ``ROLES``, all of them in the cluster."""
    inbox = f"{inbox_of(role)}.>"
    if role == KUEUE:
        publish, heard = (subjects.HELLO,), (subjects.RESOURCES,)
        return Permissions(_any(root, publish), (*_any(root, heard), inbox))
    if role == OPERATOR:
        return Permissions(_any(root, (subjects.SHUTDOWN,)), (inbox,))
    publish_kinds = (
        subjects.CREATE,
        subjects.DELETE,
        subjects.LOGS,
        subjects.QUERY,
        subjects.ANSWER_PARTS,
        subjects.HELLO,
    )
    heard_kinds = (
        subjects.CONFIG,
        subjects.RESOURCES,
        subjects.STATUS,
        subjects.REQUEST_PARTS,
    )
    return Permissions(_any(root, publish_kinds), (*_any(root, heard_kinds), inbox), 1)


def _any(root: str, kinds: Iterable[str]) -> tuple[str, ...]:
    return tuple(subject(root, kind, ANY, ANY) for kind in kinds)


def server_words(public_key: str, may: Permissions) -> str:
    """One user in the configuration of nats-server."""
    permissions: dict[str, object] = {
        "publish": {"allow": list(may.publish)},
        "subscribe": {"allow": list(may.subscribe)},
    }
    if may.answers:
        permissions["allow_responses"] = {"max": may.answers, "expires": f"{ANSWERS_S}s"}
    return json.dumps({"nkey": public_key, "permissions": permissions}, indent=2)
