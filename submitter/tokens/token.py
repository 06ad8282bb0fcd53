"""A token that is always valid, in a file for a batch system's programs.

It is renewed ahead of time by whoever needs it next: nothing runs in between. Several submitters
may be one client of their issuer, and issuers take a refresh token only once: so one of them asks
at a time, who holds the lease in a record that all of them see, and the others take what it got
from there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import threading
import time
import uuid
from typing import Any, Callable, NamedTuple, Optional

from submitter.common.errors import BackendUnavailable, IssuerRefused, IssuerUnavailable
from submitter.common.nats_request import AskNats, nobody
from submitter.tokens.file_record import FileRecord, SharedRecord, replace_file
from submitter.tokens.nats_record import BucketRecord
from submitter.tokens.oidc import TIMEOUT_S, Client, Grant, Issuer
from submitter.tokens.options import TokenOptions
from templates.program.recurring_error import RecurringError

logger = logging.getLogger(__name__)

RENEWED = (0.55, 0.75)  # after which part of its life a token is renewed: between these
LEASE_S = 2.5 * TIMEOUT_S  # longer than the issuer may take, who describes itself before
AGAIN_S = 1.0  # after the first failure; after others longer
LONGEST_PAUSE_S = 60.0
LEAST_S = 1.0  # of its life that a token must have left to be of use
_SECRET_LIMIT = 64 * 1024
_CHANCE = random.SystemRandom()  # so that several do not move in step


class State(NamedTuple):
    """What all submitters of a client know."""

    token: str = ""
    until: float = 0.0
    """When it is valid no more."""
    renew: float = 0.0
    """When it should be renewed."""
    refresh: str = ""
    """What to ask with the next time."""
    seed: str = ""
    """What tells whether somebody has put another refresh token into the file."""
    holder: str = ""
    """Who is asking the issuer, and until when nobody else does."""
    held_until: float = 0.0


class Tokens:
    """The token of one pool; ``ensure`` may be called in several threads."""

    def __init__(
        self,
        options: TokenOptions,
        record: SharedRecord,
        path: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._issuer = Issuer(options.issuer, options.ca_file)
        self._record = record
        self.path = path
        """The file."""
        self._clock = clock
        self._me = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._state = State()  # the latest that is known
        self._written = ""  # the token in the file
        self._next = 0.0  # when to look again
        self._failures = 0
        what = f"the token of {options.client_id} is"
        self._error = RecurringError(logger, f"{what} not renewed", f"{what} renewed again")

    def ensure(self) -> None:
        """See to it that the file has a valid token; ``BackendUnavailable`` if there is none."""
        if self._clock() >= self._next and self._lock.acquire(blocking=not self._is_valid()):
            try:
                if self._clock() >= self._next:
                    self._look()
            finally:
                self._lock.release()
        if not self._is_valid():
            raise BackendUnavailable(f"no valid token: {self.trouble or 'it is being renewed'}")

    @property
    def trouble(self) -> str:
        """Why the token could not be renewed when that was last tried."""
        return self._error.message

    @property
    def left_s(self) -> float:
        """Seconds until the token is valid no more."""
        return self._state.until - self._clock()

    def _is_valid(self) -> bool:
        state = self._state
        return state.token == self._written != "" and self.left_s > LEAST_S

    # --- one look -------------------------------------------------------------------------------

    def _look(self) -> None:
        now = self._clock()
        try:
            version = self._read()
            if now < self._state.renew:
                self._next = self._state.renew
                self._is_well()
            elif self._state.held_until > now:
                self._next = now + AGAIN_S
            else:
                self._renew(version, now)
        except (IssuerRefused, IssuerUnavailable, OSError) as error:
            self._failed(error, now)

    def _read(self) -> str:
        """Learn what the others know, and put it into the file; the record's version."""
        content, version = self._record.read()
        state = _parse(content)
        if state.until < self._state.until:  # what was got could not be told to the others
            state = self._state._replace(holder="", held_until=0.0)
            version = self._record.swap(version, _dump(state)) or version
        seed = self._seed()
        if seed and _digest(seed) != state.seed:  # a new one counts for more than what came of old
            state = state._replace(refresh=seed, seed=_digest(seed), renew=0.0)
        self._keep(state)
        return version

    def _renew(self, version: str, now: float) -> None:
        """Ask the issuer, unless another submitter is quicker."""
        before = self._state._replace(holder="", held_until=0.0)
        held = before._replace(holder=self._me, held_until=now + LEASE_S)
        mine = self._record.swap(version, _dump(held))
        if mine is None:
            self._next = now + _CHANCE.uniform(0.1, AGAIN_S)
            return
        try:
            grant = self._ask(before)
        except (IssuerRefused, IssuerUnavailable):
            self._record.swap(mine, _dump(before))
            raise
        part = _CHANCE.uniform(*RENEWED)
        after = before._replace(
            token=grant.access,
            until=now + grant.lifetime_s,
            renew=now + grant.lifetime_s * part,
            refresh=grant.refresh or before.refresh,
        )
        try:
            self._tell(mine, after)  # first: what was asked with may be of no use any more
        finally:
            self._keep(after)
        self._next = after.renew
        self._is_well()

    def _ask(self, state: State) -> Grant:
        options = self._options
        secret = _secret(options.client_secret_file) if options.client_secret_file else ""
        client = Client(options.client_id, secret)
        scopes = " ".join(options.scopes)
        if options.refresh_token_file:
            return self._issuer.refresh(client, state.refresh, scopes, options.audience)
        return self._issuer.client_credentials(client, scopes, options.audience)

    def _tell(self, version: str, state: State) -> None:
        """Let the others have it, who may have taken us for dead meanwhile."""
        told = self._record.swap(version, _dump(state))
        if told is None:
            content, version = self._record.read()
            told = self._record.swap(version, _dump(state)) if _older(content, state) else version
        if told is None:
            raise OSError(0, "others change the shared record all the time")

    def _keep(self, state: State) -> None:
        self._state = state
        if state.token and state.token != self._written:
            replace_file(self.path, state.token.encode())
            self._written = state.token

    def _seed(self) -> str:
        """The refresh token that the site was given."""
        name = self._options.refresh_token_file
        return _secret(name) if name else ""

    # --- trouble --------------------------------------------------------------------------------

    def _failed(self, error: Exception, now: float) -> None:
        self._failures += 1
        pause_s = min(AGAIN_S * 2.0 ** min(self._failures - 1, 16), LONGEST_PAUSE_S)
        asked_s = error.pause_s if isinstance(error, IssuerUnavailable) else 0.0
        self._next = now + max(pause_s * _CHANCE.uniform(0.5, 1.0), asked_s)
        words = str(error)
        if isinstance(error, OSError):
            words = f"{error.filename or 'the shared record'}: {error.strerror or error}"
        if isinstance(error, IssuerRefused) and self._options.refresh_token_file:
            words = f"{words}; a new refresh token belongs in {self._options.refresh_token_file}"
        self._error.set(words)

    def _is_well(self) -> None:
        self._failures = 0
        self._error.clear()


def _older(content: bytes, state: State) -> bool:
    return _parse(content).until < state.until


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _secret(path: str) -> str:
    """What a file holds; raises ``OSError``."""
    with open(path, encoding="ascii", errors="replace") as file:
        text = file.read(_SECRET_LIMIT).strip()
    if not text:
        raise OSError(0, "is empty", path)
    return text


def _dump(state: State) -> bytes:
    return json.dumps(state._asdict()).encode()


def _parse(content: bytes) -> State:
    """What cannot be read counts as nothing: then a new token is asked for."""
    try:
        raw: Any = json.loads(content or b"{}")
    except ValueError:
        return State()
    if not isinstance(raw, dict):
        return State()
    fitting = {
        name: raw[name]
        for name, default in State()._asdict().items()
        if isinstance(raw.get(name), type(default))
    }
    return State(**fitting)


def tokens_of(options: TokenOptions, folder: str, ask: AskNats = nobody) -> Optional[Tokens]:
    """Those of a pool whose directory this is; None if it needs none."""
    if not options.issuer:
        return None
    who = f"token-{_digest(f'{options.issuer} {options.client_id}')[:16]}"
    return Tokens(options, _record(options, folder, who, ask), f"{folder}/token")


def _record(options: TokenOptions, folder: str, who: str, ask: AskNats) -> SharedRecord:
    if options.bucket:
        return BucketRecord(ask, options.bucket, who)
    return FileRecord(f"{options.share or folder}/{who}.json")
