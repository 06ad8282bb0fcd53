"""Permissions of our users at the NATS server, as they follow from the table of subjects.

Only what is listed is allowed. They are the second wall: what leaves an account at all is said in
``accounts.py``. A site is confined to its own pools and its own inbox. It answers at the subjects
that the server makes for what another account asks (``ANSWERS``): a right that is fixed, because
the server forgets at every reload whom it has allowed to answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from templates.nats.subjects import (
    ANSWERS,
    ANY,
    INBOX,
    NO_TOKENS,
    SITE,
    SubjectRow,
    published_by,
    queue_group,
    subject,
    subscribed_by,
)

BUCKET_MAKER = "bucket"


class Permissions(NamedTuple):
    """The rights of one user; a subscription with a queue group is ``<subject> <group>``."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: int = 0  # messages that may answer one, where there is no right for them that is fixed


def inbox_of(user: str) -> str:
    """Return the prefix of all inboxes of a user; nobody else may subscribe below it."""
    return f"{INBOX}_{user}"


def bucket_of(site: str) -> str:
    """Return the name of a site's bucket in the key-value store; the server's admin makes it."""
    return f"tokens-{site}"


def key_of_bucket(bucket: str, key: str) -> str:
    """Return the subject that the value of a key is published on."""
    return f"$KV.{bucket}.{key}"


def request_to_bucket(bucket: str, key: str) -> str:
    """Return the subject that the last value of a key is requested on.

    The server answers it at once and out of order; other questions wait in a queue of JetStream,
    where those of one site would keep those of all others waiting.
    """
    return f"$JS.API.DIRECT.GET.KV_{bucket}.{key_of_bucket(bucket, key)}"


def site_permissions(root: str, site: str, pools: Iterable[str], bucket: str = "") -> Permissions:
    """Return the permissions of a site's submitter: it serves its own pools only."""
    may = _of_pools(root, site, pools)
    publish = [*may.publish, f"{ANSWERS}.>"]
    if bucket:
        publish += [key_of_bucket(bucket, ANY), request_to_bucket(bucket, ANY)]
    return may._replace(publish=tuple(publish))


def bucket_maker_permissions(bucket: str) -> Permissions:
    """Return the permissions of whoever makes a bucket: it is not the site."""
    requests = f"$JS.API.STREAM.*.KV_{bucket}"
    return Permissions((requests,), (f"{inbox_of(BUCKET_MAKER)}.>",))


def guest_permissions(root: str, site: str, pools: Iterable[str]) -> Permissions:
    """Return the permissions of a site that has no account of its own yet, but a user of ours."""
    return _of_pools(root, site, pools)._replace(answers=_most_answers(SITE))


def role_permissions(root: str, role: str, guests: Iterable[str] = ()) -> Permissions:
    """Return the permissions of one of ``subjects.ROLES``, all of them in the cluster."""
    publish = [subject(root, row.kind, ANY, ANY) for row in published_by(role)]
    subscribe = [subject(root, row.kind, ANY, ANY) for row in subscribed_by(role)]
    if _most_answers(role):
        publish += [f"{ANSWERS}.>", *(f"{inbox_of(guest)}.>" for guest in guests)]
    return Permissions(tuple(publish), (*subscribe, f"{inbox_of(role)}.>"))


def _of_pools(root: str, site: str, pools: Iterable[str]) -> Permissions:
    publish: list[str] = []
    subscribe = [subject(root, row.kind) for row in subscribed_by(SITE) if row.tokens == NO_TOKENS]
    subscribe.append(f"{inbox_of(site)}.>")
    for pool in pools:
        publish += [subject(root, row.kind, pool, ANY) for row in published_by(SITE)]
        of_pool = [row for row in subscribed_by(SITE) if row.tokens != NO_TOKENS]
        subscribe += [_subscription(root, row, pool) for row in of_pool]
    return Permissions(tuple(publish), tuple(subscribe))


def _subscription(root: str, row: SubjectRow, pool: str) -> str:
    """Return a subject with its queue group, as the server writes it."""
    return f"{subject(root, row.kind, pool, ANY)} {queue_group(row, pool)}".rstrip()


def _most_answers(user: str) -> int:
    """Return how many messages may answer one: as the longest answer needs."""
    return max((row.answers for row in subscribed_by(user)), default=0)
