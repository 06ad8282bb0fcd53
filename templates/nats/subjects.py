"""The NATS subjects: one table, and functions that build and parse them.

    <root>.create.<pool>             request    plugin -> submitter
    <root>.delete.<pool>.<job>       request    plugin -> submitter
    <root>.logs.<pool>.<job>         request    plugin -> submitter, answered by a stream
    <root>.query.<pool>              request    plugin -> submitter
    <root>.config.<pool>             publish    submitter -> plugin
    <root>.resources.<pool>          publish    submitter -> plugin, kueue_nats
    <root>.status.<pool>             publish    submitter -> plugin
    <root>.requestparts.<pool>.<id>  request    submitter -> plugin, whose request was large
    <root>.answerparts.<pool>.<id>   request    plugin -> submitter, whose answer was large
    <root>.shutdown.<pool>           publish    operator -> submitter
    <root>.hello                     publish    plugin, kueue_nats -> submitters

The pool stands in every subject but the last, so that a site's credential can be confined to its
own pools, and a submitter needs a handful of wildcard subscriptions however many jobs it has.

What passes between the accounts of the server (``accounts.py``), what their users may publish and
subscribe to (``permissions.py``; the chart has both by ``chart/files/subjects.json``) and what
``interlink-submitter check`` tries follow from ``TABLE``.

No user may both publish and subscribe to the same subject: so there are two subjects for parts. An
answer goes to an inbox only, whatever a message names for it.
"""

from __future__ import annotations

from typing import NamedTuple

from templates.common.errors import WireError
from templates.common.names import check_token
from templates.nats.codec import LARGEST

CREATE = "create"
DELETE = "delete"
LOGS = "logs"
QUERY = "query"
CONFIG = "config"
RESOURCES = "resources"
STATUS = "status"
REQUEST_PARTS = "requestparts"
ANSWER_PARTS = "answerparts"
SHUTDOWN = "shutdown"
HELLO = "hello"

# Users: a site's submitter, and three in the cluster.
SITE = "site"
PLUGIN = "plugin"
KUEUE = "kueue"
OPERATOR = "operator"
ROLES = (PLUGIN, KUEUE, OPERATOR)

# Tokens behind the kind.
NO_TOKENS = 0
POOL = 1
POOL_AND_ITEM = 2  # a job, or the id of a large message

# Messages that may answer one.
NO_ANSWER = 0
ONE_ANSWER = 1
STREAM = 512  # a window of a log

# Seconds for which an answer may be silent: then the server forgets who has asked.
ANSWER_S = 120
PART_S = 15  # a part is there at once, and questions for parts that nobody has cost memory


# Bytes of a message before it was compressed: more is refused, whatever it costs on the wire.
SMALL = 64 * 1024
MIDDLE = 1024 * 1024
PAGE = 4 * 1024 * 1024  # of states
LARGEST_RESOURCES = 256 * 1024


class SubjectRow(NamedTuple):
    """One kind of subject."""

    kind: str
    tokens: int
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    answers: int = NO_ANSWER
    queued: bool = False  # one of a site's submitters gets it: the queue group is the pool
    largest: int = SMALL
    largest_answer: int = SMALL
    silent_s: int = ANSWER_S  # how long an answer may be


_SITE, _PLUGIN, _WATCHERS = (SITE,), (PLUGIN,), (PLUGIN, KUEUE)

TABLE = (
    SubjectRow(CREATE, POOL, _PLUGIN, _SITE, ONE_ANSWER, True, LARGEST, MIDDLE),
    SubjectRow(DELETE, POOL_AND_ITEM, _PLUGIN, _SITE, ONE_ANSWER, queued=True),
    SubjectRow(LOGS, POOL_AND_ITEM, _PLUGIN, _SITE, STREAM, queued=True),
    SubjectRow(QUERY, POOL, _PLUGIN, _SITE, ONE_ANSWER, True, MIDDLE, PAGE),
    SubjectRow(CONFIG, POOL, _SITE, _PLUGIN, largest=MIDDLE),
    SubjectRow(RESOURCES, POOL, _SITE, _WATCHERS, largest=LARGEST_RESOURCES),
    SubjectRow(STATUS, POOL, _SITE, _PLUGIN, largest=PAGE),
    SubjectRow(REQUEST_PARTS, POOL_AND_ITEM, _SITE, _PLUGIN, ONE_ANSWER, silent_s=PART_S),
    SubjectRow(ANSWER_PARTS, POOL_AND_ITEM, _PLUGIN, _SITE, ONE_ANSWER, silent_s=PART_S),
    SubjectRow(SHUTDOWN, POOL, (OPERATOR,), _SITE),
    SubjectRow(HELLO, NO_TOKENS, _WATCHERS, _SITE),
)
"""Every kind of subject; accounts, permissions and checks follow from these rows."""

DEFAULT_ROOT = "interlink"
INBOX = "_INBOX"  # a user's own begin with this and the user's name
ANSWERS = "_R_"  # the server's subjects for answers to what another account has asked
ANY = "*"

ROWS = {row.kind: row for row in TABLE}


class Address(NamedTuple):
    """The kind and the tokens of a subject."""

    kind: str
    pool: str = ""
    item: str = ""


def published_by(user: str) -> tuple[SubjectRow, ...]:
    """Return the rows of what a user publishes."""
    return tuple(row for row in TABLE if user in row.publishers)


def subscribed_by(user: str) -> tuple[SubjectRow, ...]:
    """Return the rows of what a user subscribes to."""
    return tuple(row for row in TABLE if user in row.subscribers)


def queue_group(row: SubjectRow, pool: str) -> str:
    """Return the queue group in which a pool's submitters subscribe; empty if all get it."""
    return pool if row.queued else ""


def subject(root: str, kind: str, pool: str = "", item: str = "") -> str:
    """Return the subject of an address; ``ANY`` as pool or item subscribes to all of them."""
    tokens = (pool, item)[: ROWS[kind].tokens]
    return ".".join((root, kind, *map(_token, tokens)))


def is_inbox(text: str) -> bool:
    """Return whether an answer may go there: to an inbox, or by the server to another account's."""
    first, _, rest = text.partition(".")
    return bool(rest) and (first in (INBOX, ANSWERS) or first.startswith(f"{INBOX}_"))


def row_of(root: str, text: str) -> SubjectRow:
    """Return the row of a subject."""
    return ROWS[parse(root, text).kind]


def parse(root: str, text: str) -> Address:
    """Return the address in a subject; refuse what ``subject`` cannot have made."""
    if not text.startswith(root + "."):
        raise WireError(text, f"is not a subject below {root}")
    kind, *rest = text[len(root) + 1 :].split(".")
    if kind not in ROWS or len(rest) != ROWS[kind].tokens:
        raise WireError(text, "is not a subject of ours")
    for token in rest:
        check_token(text, token, WireError)
    return Address(kind, *rest)


def _token(text: str) -> str:
    return text if text == ANY else check_token("subject", text, WireError)
