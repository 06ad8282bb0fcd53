"""Names: which ones are valid, and the one name that a job has everywhere.

The caches hold short texts only, so that hostile input cannot fill the memory with long ones.
"""

from __future__ import annotations

import re
from functools import lru_cache

from templates.errors import Located, PodRejected

LABEL_RULE = "must be 1 to 63 lower-case letters, digits and inner dashes"
SUBDOMAIN_RULE = "must be lower-case letters, digits, dashes and dots, at most 253"
TOKEN_RULE = "must be 1 to 63 letters, digits, dashes and underscores"

_STEM_LENGTH = 24
_UUID_LENGTH = 36
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,63}")
_FOREIGN = re.compile(r"[^a-z0-9]+")


@lru_cache(maxsize=4096)
def _matches_label(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether the text is a DNS label (RFC 1123), as names of containers and volumes are."""
    return len(text) <= 63 and _matches_label(text)


def is_subdomain(text: str) -> bool:
    """Whether the text is a DNS subdomain (RFC 1123), as names of pods are."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def check_uid(where: str, uid: object) -> str:
    """The text if it is a lower-case UUID; anything else cannot identify a job."""
    if type(uid) is not str or _UUID.fullmatch(uid) is None:
        raise PodRejected(where, "must be a lower-case UUID")
    return uid


def check_token(where: str, text: object, error: type[Located] = PodRejected) -> str:
    """The text if it can stand between two dots of a NATS subject and name a pool."""
    if type(text) is not str or _TOKEN.fullmatch(text) is None:
        raise error(where, TOKEN_RULE)
    return text


def job_name(pod_name: str, uid: str) -> str:
    """The one name of a job: readable by its stem, unique by its uid, at most 61 characters.

    It is a DNS label and one NATS token, so that it can name the subject, the directory and the
    job in the batch system alike.
    """
    check_uid("pod.metadata.uid", uid)
    stem = _FOREIGN.sub("-", pod_name.lower()).strip("-")[:_STEM_LENGTH].rstrip("-")
    return f"{stem or 'pod'}-{uid}"


def uid_of(job: str) -> str:
    """The pod's uid in a job name; refuses what ``job_name`` cannot have made."""
    stem, uid = job[: -_UUID_LENGTH - 1], job[-_UUID_LENGTH:]
    if _UUID.fullmatch(uid) is None or job != f"{stem}-{uid}":
        raise PodRejected("job name", f"does not end in a uid: {job}")
    if len(stem) > _STEM_LENGTH or not is_label(stem):
        raise PodRejected("job name", f"does not begin with the name of a pod: {job}")
    return uid
