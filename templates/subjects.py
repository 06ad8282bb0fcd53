"""The NATS subjects: built and parsed here and nowhere else.

    <root>.create.<pool>             request    plugin -> submitter
    <root>.delete.<pool>.<job>       request    plugin -> submitter
    <root>.logs.<pool>.<job>         request    plugin -> submitter, answered by a stream
    <root>.query.<pool>              request    plugin -> submitter
    <root>.requestparts.<pool>.<id>  request    submitter -> plugin, whose request was large
    <root>.answerparts.<pool>.<id>   request    plugin -> submitter, whose answer was large
    <root>.config.<pool>             publish    submitter -> plugin
    <root>.resources.<pool>          publish    submitter -> plugin, kueue_nats
    <root>.status.<pool>             publish    submitter -> plugin
    <root>.shutdown.<pool>           publish    operator -> submitter
    <root>.hello                     publish    plugin, kueue_nats -> submitters

The pool stands in every subject but the last, so that a site's credential can be confined to its
own pools, and a submitter needs a handful of wildcard subscriptions however many jobs it has.

Nobody may both publish and subscribe to the same subject. The server lets a site answer wherever a
message asks for an answer; a site that could send such a message to itself could thereby write to
any subject, other sites' creates among them. So there are two subjects for parts, and an answer
never goes to a subject of ours.
"""

from __future__ import annotations

from typing import NamedTuple

from templates.errors import WireError
from templates.names import check_token

CREATE = "create"
DELETE = "delete"
LOGS = "logs"
QUERY = "query"
REQUEST_PARTS = "requestparts"
ANSWER_PARTS = "answerparts"
CONFIG = "config"
RESOURCES = "resources"
STATUS = "status"
SHUTDOWN = "shutdown"
HELLO = "hello"

DEFAULT_ROOT = "interlink"
ANY = "*"

_WITH_ITEM = frozenset(
    (DELETE, LOGS, REQUEST_PARTS, ANSWER_PARTS)
)  # a job, or the id of a large message
_WITH_POOL = frozenset((CREATE, QUERY, CONFIG, RESOURCES, STATUS, SHUTDOWN))


class Address(NamedTuple):
    """What a subject says."""

    kind: str
    pool: str = ""
    item: str = ""


def subject(root: str, kind: str, pool: str = "", item: str = "") -> str:
    """The subject of an address; ``ANY`` as pool or item subscribes to all of them."""
    if kind in _WITH_ITEM:
        return f"{root}.{kind}.{_token(pool)}.{_token(item)}"
    if kind in _WITH_POOL:
        return f"{root}.{kind}.{_token(pool)}"
    return f"{root}.{kind}"


def is_inbox(root: str, text: str) -> bool:
    """Whether an answer may go there."""
    return bool(text) and not f"{text}.".startswith(f"{root}.")


def parse(root: str, text: str) -> Address:
    """The address in a subject; refuses what ``subject`` cannot have made."""
    if not text.startswith(root + "."):
        raise WireError(text, f"is not a subject below {root}")
    kind, *rest = text[len(root) + 1 :].split(".")
    expected = 2 if kind in _WITH_ITEM else 1 if kind in _WITH_POOL else 0
    if len(rest) != expected or not (expected or kind == HELLO):
        raise WireError(text, "is not a subject of ours")
    for token in rest:
        check_token(text, token, WireError)
    return Address(kind, *rest)


def _token(text: str) -> str:
    return text if text == ANY else check_token("subject", text, WireError)
