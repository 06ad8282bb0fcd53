"""A token that is always valid, in a file for a batch system's programs.

It is renewed ahead of time by the call that needs it next: nothing runs in between. Several
submitters may be one client of their issuer, and issuers take a refresh token only once: so only
the holder of a lease, in a record that all of them share, requests a token, and the others take it
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
from submitter.common.nats_request import AskNats, not_connected
from submitter.tokens.file_record import FileRecord, SharedRecord, replace_file
from submitter.tokens.nats_record import BucketRecord
from submitter.tokens.oidc import TIMEOUT_S, Client, Grant, Issuer
from submitter.tokens.options import TokenOptions
from templates.program.recurring_error import RecurringError

logger = logging.getLogger(__name__)

RENEWAL_PARTS = (0.55, 0.75)  # of its lifetime: a token is renewed at a random time between these
LEASE_S = 2.5 * TIMEOUT_S  # longer than two requests to the issuer may take
FIRST_RETRY_S = 1.0  # after the first failure; later pauses are longer
LONGEST_PAUSE_S = 60.0
LEAST_REMAINING_S = 1.0  # of its lifetime, for a token to be of use
_SECRET_LIMIT = 64 * 1024
_RANDOM = random.SystemRandom()  # so that several submitters do not act at the same time


class TokenState(NamedTuple):
    """The record that all submitters of a client share."""

    token: str = ""
    until: float = 0.0
    """When the token expires."""
    renew: float = 0.0
    """When the token should be renewed."""
    refresh: str = ""
    """The refresh token for the next request."""
    seed: str = ""
    """Digest of the refresh token in the file, to notice a new one."""
    holder: str = ""
    """The submitter with the lease, and until when it has it."""
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
        """The file with the token."""
        self._clock = clock
        self._own_id = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._state = TokenState()  # as last read or written
        self._file_token = ""  # the token in the file
        self._next_check = 0.0  # when to read the record again
        self._failures = 0
        prefix = f"the token of {options.client_id} is"
        self._error = RecurringError(logger, f"{prefix} not renewed", f"{prefix} renewed again")

    def ensure(self) -> None:
        """Make sure that the file has a valid token; raise ``BackendUnavailable`` without one."""
        if self._clock() >= self._next_check and self._lock.acquire(blocking=not self._is_valid()):
            try:
                if self._clock() >= self._next_check:
                    self._check_record()
            finally:
                self._lock.release()
        if not self._is_valid():
            raise BackendUnavailable(f"no valid token: {self.error or 'it is being renewed'}")

    @property
    def error(self) -> str:
        """The error of the last attempt to renew the token; empty if it succeeded."""
        return self._error.message

    @property
    def remaining_s(self) -> float:
        """Seconds until the token expires."""
        return self._state.until - self._clock()

    def _is_valid(self) -> bool:
        state = self._state
        return state.token == self._file_token != "" and self.remaining_s > LEAST_REMAINING_S

    # --- renewal --------------------------------------------------------------------------------

    def _check_record(self) -> None:
        now = self._clock()
        try:
            version = self._read_record()
            if now < self._state.renew:
                self._next_check = self._state.renew
                self._set_succeeded()
            elif self._state.held_until > now:
                self._next_check = now + FIRST_RETRY_S
            else:
                self._renew(version, now)
        except (IssuerRefused, IssuerUnavailable, OSError) as error:
            self._set_failed(error, now)

    def _read_record(self) -> str:
        """Read the record and write its token into the file; return the record's version."""
        content, version = self._record.read()
        state = _parse(content)
        if state.until < self._state.until:  # our newer token could not be shared
            state = self._state._replace(holder="", held_until=0.0)
            version = self._record.swap(version, _dump(state)) or version
        seed = self._read_seed()
        if seed and _digest(seed) != state.seed:  # a new one replaces what came of the old one
            state = state._replace(refresh=seed, seed=_digest(seed), renew=0.0)
        self._take_over(state)
        return version

    def _renew(self, version: str, now: float) -> None:
        """Request a token with the lease, unless another submitter has taken it."""
        before = self._state._replace(holder="", held_until=0.0)
        held = before._replace(holder=self._own_id, held_until=now + LEASE_S)
        own_version = self._record.swap(version, _dump(held))
        if own_version is None:
            self._next_check = now + _RANDOM.uniform(0.1, FIRST_RETRY_S)
            return
        try:
            grant = self._request_token(before)
        except (IssuerRefused, IssuerUnavailable):
            self._record.swap(own_version, _dump(before))
            raise
        renewal_part = _RANDOM.uniform(*RENEWAL_PARTS)
        after = before._replace(
            token=grant.access,
            until=now + grant.lifetime_s,
            renew=now + grant.lifetime_s * renewal_part,
            refresh=grant.refresh or before.refresh,
        )
        try:
            # First: the old refresh token may be of no use any more.
            self._share(own_version, after)
        finally:
            self._take_over(after)
        self._next_check = after.renew
        self._set_succeeded()

    def _request_token(self, state: TokenState) -> Grant:
        options = self._options
        secret = _read_secret(options.client_secret_file) if options.client_secret_file else ""
        client = Client(options.client_id, secret)
        scopes = " ".join(options.scopes)
        if options.refresh_token_file:
            return self._issuer.refresh(client, state.refresh, scopes, options.audience)
        return self._issuer.client_credentials(client, scopes, options.audience)

    def _share(self, version: str, state: TokenState) -> None:
        """Write the record, even if another submitter has taken our lease meanwhile."""
        written = self._record.swap(version, _dump(state))
        if written is None:
            content, version = self._record.read()
            is_older = _parse(content).until < state.until
            written = self._record.swap(version, _dump(state)) if is_older else version
        if written is None:
            raise OSError(0, "others change the shared record all the time")

    def _take_over(self, state: TokenState) -> None:
        self._state = state
        if state.token and state.token != self._file_token:
            replace_file(self.path, state.token.encode())
            self._file_token = state.token

    def _read_seed(self) -> str:
        """Return the refresh token that the site was given."""
        name = self._options.refresh_token_file
        return _read_secret(name) if name else ""

    # --- errors ---------------------------------------------------------------------------------

    def _set_failed(self, error: Exception, now: float) -> None:
        self._failures += 1
        pause_s = min(FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 16), LONGEST_PAUSE_S)
        requested_pause_s = error.pause_s if isinstance(error, IssuerUnavailable) else 0.0
        self._next_check = now + max(pause_s * _RANDOM.uniform(0.5, 1.0), requested_pause_s)
        message = str(error)
        if isinstance(error, OSError):
            message = f"{error.filename or 'the shared record'}: {error.strerror or error}"
        if isinstance(error, IssuerRefused) and self._options.refresh_token_file:
            message = (
                f"{message}; a new refresh token belongs in {self._options.refresh_token_file}"
            )
        self._error.set(message)

    def _set_succeeded(self) -> None:
        self._failures = 0
        self._error.clear()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read_secret(path: str) -> str:
    """Return the secret in a file; raise ``OSError``."""
    with open(path, encoding="ascii", errors="replace") as file:
        text = file.read(_SECRET_LIMIT).strip()
    if not text:
        raise OSError(0, "is empty", path)
    return text


def _dump(state: TokenState) -> bytes:
    return json.dumps(state._asdict()).encode()


def _parse(content: bytes) -> TokenState:
    """Return the state; an empty one if it cannot be read, so that a new token is requested."""
    try:
        raw: Any = json.loads(content or b"{}")
    except ValueError:
        return TokenState()
    if not isinstance(raw, dict):
        return TokenState()
    valid = {
        name: raw[name]
        for name, default in TokenState()._asdict().items()
        if isinstance(raw.get(name), type(default))
    }
    return TokenState(**valid)


def make_tokens(
    options: TokenOptions, folder: str, ask: AskNats = not_connected
) -> Optional[Tokens]:
    """Return the tokens of the pool with this directory; None if it needs none."""
    if not options.issuer:
        return None
    name = f"token-{_digest(f'{options.issuer} {options.client_id}')[:16]}"
    return Tokens(options, _make_record(options, folder, name, ask), f"{folder}/token")


def _make_record(options: TokenOptions, folder: str, name: str, ask: AskNats) -> SharedRecord:
    if options.bucket:
        return BucketRecord(ask, options.bucket, name)
    return FileRecord(f"{options.share or folder}/{name}.json")
