"""Permissions of our users at the NATS server, as they follow from the table of subjects.

Only what is listed is allowed. A site is confined to its own pools and its own inbox; it answers
only where a message to one of its pools has asked for an answer. See ``subjects.py`` for why no
user may both publish and subscribe to the same subject.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from templates.nats.subjects import (
    ANY,
    NO_TOKENS,
    SITE,
    SubjectRow,
    published_by,
    queue_group,
    subject,
    subscribed_by,
)

ANSWERS_S = 120  # how long an answer may follow


class Permissions(NamedTuple):
    """The rights of one user; a subscription with a queue group is ``<subject> <group>``."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: int = 0  # messages that may answer one that came in


def inbox_of(user: str) -> str:
    """Return the prefix of all inboxes of a user; nobody else may subscribe below it."""
    return f"_INBOX_{user}"


def bucket_of(site: str) -> str:
    """Return the name of a site's bucket in the key-value store; the server's admin makes it."""
    return f"tokens-{site}"


def key_of_bucket(bucket: str, key: str) -> str:
    """Return the subject that the value of a key is published on."""
    return f"$KV.{bucket}.{key}"


def request_to_bucket(bucket: str) -> str:
    """Return the subject that the last value of a key is requested on."""
    return f"$JS.API.STREAM.MSG.GET.KV_{bucket}"


def site_permissions(root: str, site: str, pools: Iterable[str], bucket: str = "") -> Permissions:
    """Return the permissions of a site's submitter: it serves its own pools only."""
    publish: list[str] = []
    subscribe = [subject(root, row.kind) for row in subscribed_by(SITE) if row.tokens == NO_TOKENS]
    subscribe.append(f"{inbox_of(site)}.>")
    for pool in pools:
        publish += [subject(root, row.kind, pool, ANY) for row in published_by(SITE)]
        of_pool = [row for row in subscribed_by(SITE) if row.tokens != NO_TOKENS]
        subscribe += [_subscription(root, row, pool) for row in of_pool]
    if bucket:
        publish += [key_of_bucket(bucket, ANY), request_to_bucket(bucket)]
    return Permissions(tuple(publish), tuple(subscribe), _answers(SITE))


def role_permissions(root: str, role: str) -> Permissions:
    """Return the permissions of one of ``subjects.ROLES``, all of them in the cluster."""
    publish = tuple(subject(root, row.kind, ANY, ANY) for row in published_by(role))
    subscribe = tuple(subject(root, row.kind, ANY, ANY) for row in subscribed_by(role))
    return Permissions(publish, (*subscribe, f"{inbox_of(role)}.>"), _answers(role))


def _subscription(root: str, row: SubjectRow, pool: str) -> str:
    """Return a subject with its queue group, as the server writes it."""
    return f"{subject(root, row.kind, pool, ANY)} {queue_group(row, pool)}".rstrip()


def _answers(user: str) -> int:
    """Return how many messages may answer one: as the longest answer needs."""
    return max((row.answers for row in subscribed_by(user)), default=0)


def server_entry(public_key: str, may: Permissions) -> str:
    """Return one user as the configuration of nats-server has it."""
    permissions: dict[str, object] = {
        "publish": {"allow": list(may.publish)},
        "subscribe": {"allow": list(may.subscribe)},
    }
    if may.answers:
        permissions["allow_responses"] = {"max": may.answers, "expires": f"{ANSWERS_S}s"}
    return json.dumps({"nkey": public_key, "permissions": permissions}, indent=2)
