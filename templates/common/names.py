"""Names: rules for valid ones, the name of a job, the names of a pool in Kubernetes.

The caches hold short texts only, so that hostile input cannot fill the memory with long ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import lru_cache

from templates.common.errors import ConfigError, Located, PodRejected

LABEL_RULE = "must be 1 to 63 lower-case letters, digits and inner dashes"
SUBDOMAIN_RULE = "must be lower-case letters, digits, dashes and dots, at most 253"
TOKEN_RULE = "must be 1 to 63 letters, digits, dashes and underscores"

LABEL_LENGTH = 63  # of the value of a label or of a toleration, too
SUBDOMAIN_LENGTH = 253

_LONGEST_NAME = 255  # bytes of a file's name, the kernel's limit
_SURELY_SHORT = _LONGEST_NAME // 4  # so many characters are never too many bytes
_ROOT_LENGTH = 120
_STEM_LENGTH = 24
_UUID_LENGTH = 36
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_RESOURCE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,63}")
_ROOT = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_FOREIGN = re.compile(r"[^a-z0-9]+")
_PLAIN_POOL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_EDGE = "p"  # stands beside a dash or underscore that would begin or end a value
_HASH = re.compile(r"x[0-9a-f]{8}")
_HASH_LENGTH = 8


@lru_cache(maxsize=4096)
def _matches_label(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Return whether the text is a DNS label (RFC 1123), as names of containers and volumes are."""
    return len(text) <= LABEL_LENGTH and _matches_label(text)


def is_subdomain(text: str) -> bool:
    """Return whether the text is a DNS subdomain (RFC 1123), as names of pods are."""
    return len(text) <= SUBDOMAIN_LENGTH and _SUBDOMAIN.fullmatch(text) is not None


def is_resource(name: object) -> bool:
    """Return whether Kubernetes can have a resource, or a label, of this name."""
    if type(name) is not str:
        return False
    prefix, slash, rest = name.rpartition("/")
    return _RESOURCE.fullmatch(rest) is not None and (is_subdomain(prefix) or not slash)


def check_uid(where: str, uid: object) -> str:
    """Return the text if it is a lower-case UUID; anything else cannot identify a job."""
    if type(uid) is not str or _UUID.fullmatch(uid) is None:
        raise PodRejected(where, "must be a lower-case UUID")
    return uid


def check_token(where: str, text: object, error: type[Located] = PodRejected) -> str:
    """Return the text if it can stand between two dots of a NATS subject and name a pool."""
    if type(text) is not str or _TOKEN.fullmatch(text) is None:
        raise error(where, TOKEN_RULE)
    return text


def check_root(where: str, root: object) -> str:
    """Return the text if all NATS subjects can begin with it."""
    if type(root) is not str or len(root) > _ROOT_LENGTH or _ROOT.fullmatch(root) is None:
        raise ConfigError(where, "must be letters, digits, dashes and underscores, between dots")
    return root


def has_long_name(path: str) -> bool:
    """Return whether a part of a path is longer than the kernel lets a file's name be."""
    if len(path) <= _SURELY_SHORT:
        return False
    return any(len(part.encode()) > _LONGEST_NAME for part in path.split("/"))


def matches_any(text: str, patterns: Collection[str]) -> bool:
    """Return whether a text matches one of these shell patterns."""
    return "*" in patterns or any(fnmatchcase(text, pattern) for pattern in patterns)


def job_name(pod_name: str, uid: str) -> str:
    """Return the one name of a job: readable by its stem, unique by its uid, at most 61 characters.

    It is a DNS label and one NATS token, so that it can name the subject, the directory and the
    job in the batch system alike.
    """
    check_uid("pod.metadata.uid", uid)
    if _LABEL.fullmatch(pod_name) is None or "--" in pod_name:
        pod_name = _FOREIGN.sub("-", pod_name.lower()).strip("-")
    stem = pod_name[:_STEM_LENGTH].rstrip("-")
    return f"{stem or 'pod'}-{uid}"


def uid_of(job: str) -> str:
    """Return the pod's uid in a job name; refuse what ``job_name`` cannot have made."""
    stem, uid = job[: -_UUID_LENGTH - 1], job[-_UUID_LENGTH:]
    if _UUID.fullmatch(uid) is None or job != f"{stem}-{uid}":
        raise PodRejected("job name", f"does not end in a uid: {job}")
    if len(stem) > _STEM_LENGTH or not is_label(stem):
        raise PodRejected("job name", f"does not begin with the name of a pod: {job}")
    return uid


# --- in Kubernetes --------------------------------------------------------------------------------


def pool_value(pool: str, error: type[Located] = PodRejected) -> str:
    """Return the value of a toleration that names the pool.

    It must begin and end with a letter or digit, as most pools do. Another end gets a ``p`` beside
    it, and a dot, which no pool has in it: ``-a_`` is ``p.-a_.p``.
    """
    check_token("pool", pool, error)
    before = "" if pool[0].isalnum() else f"{_EDGE}."
    after = "" if pool[-1].isalnum() else f".{_EDGE}"
    value = f"{before}{pool}{after}"
    if len(value) > LABEL_LENGTH:
        reason = f"is too long for a toleration, where it would be {value}, at most {LABEL_LENGTH}"
        raise error(f"pool {pool}", reason)
    return value


def pool_of_value(
    value: object, where: str = "toleration", error: type[Located] = PodRejected
) -> str:
    """Return the pool that a toleration names; refuse what ``pool_value`` cannot have made."""
    if type(value) is not str:
        raise error(where, TOKEN_RULE)
    if _PLAIN_POOL.fullmatch(value) is not None:
        return value
    pool = value[len(_EDGE) + 1 :] if value.startswith(f"{_EDGE}.") else value
    pool = pool[: -len(_EDGE) - 1] if pool.endswith(f".{_EDGE}") else pool
    expected = pool_value(check_token(where, pool, error), error)
    if value != expected:
        raise error(where, f"the pool {pool} is written {expected}")
    return pool


def flavor_name(*parts: str) -> str:
    """Return one name for several, as of a MasterQueue, a flavor group and a pool: joined by dots.

    It is a DNS subdomain. Among names of equally many parts each is that of its parts alone: a part
    that is no DNS label (only the first may have dots) is made one, and a hash of it follows.
    """
    joined = ".".join(_readable(part, is_first=i == 0) for i, part in enumerate(parts))
    if len(joined) <= SUBDOMAIN_LENGTH:
        return joined
    start = joined[: SUBDOMAIN_LENGTH - _HASH_LENGTH - 2].rstrip(".-")
    return f"{start}.{_hash(chr(0).join(parts))}"


def _readable(part: str, is_first: bool) -> str:
    """Return the part if it fits and does not look as if it ended in a hash of ours."""
    fits = is_subdomain(part) if is_first else is_label(part)
    if fits and _HASH.fullmatch(part.rpartition(".")[2]) is None:
        return part
    slug = _FOREIGN.sub("-", part.lower()).strip("-")
    return f"{slug or 'pool'}.{_hash(part)}"


def _hash(text: str) -> str:
    return "x" + hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
