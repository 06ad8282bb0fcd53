"""A shared record in a bucket of NATS's key-value store: one message of a stream.

It is read and written by the stream's own subjects, with the rights for that bucket alone
(``templates/nats/permissions.py``); no site has the right to create buckets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Optional

from submitter.common.nats_request import AskNats
from templates.common.errors import one_line
from templates.nats.permissions import key_of_bucket, request_to_bucket
from templates.nats.requests import LinkError, NoResponders, Reply

NO_MESSAGE = "404"  # the status if the key was never written
WRONG_LAST_SEQUENCE = (10071, 10164)  # the server's error codes if the version is not the last one
_SEQUENCE = "Nats-Sequence"
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_NO_VERSION = "0"  # the version of a key that was never written


class BucketRecord:
    """One key of an existing bucket; administrators of the server can read it, too."""

    def __init__(self, ask: AskNats, bucket: str, key: str) -> None:
        self._ask, self._bucket = ask, bucket
        self._subject = key_of_bucket(bucket, key)
        self._request = request_to_bucket(bucket, key)

    def read(self) -> tuple[bytes, str]:
        reply = self._reply(self._request, b"", {})
        if reply.headers.get("Status") == NO_MESSAGE:
            return b"", _NO_VERSION
        sequence = reply.headers.get(_SEQUENCE, "")
        if not (sequence.isascii() and sequence.isdigit()):
            raise self._error(reply.headers.get("Description"))
        return reply.payload, sequence

    def swap(self, version: str, content: bytes) -> Optional[str]:
        reply = self._reply(self._subject, content, {_EXPECTED: version})
        try:
            response = json.loads(reply.payload)
        except ValueError:
            response = None
        if not isinstance(response, dict):
            raise self._error()
        error = response.get("error")
        if isinstance(error, dict):
            if error.get("err_code") in WRONG_LAST_SEQUENCE:
                return None
            raise self._error(error.get("description"))
        if not isinstance(response.get("seq"), int):
            raise self._error()
        return str(response["seq"])

    def _reply(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> Reply:
        try:
            return self._ask(subject, payload, headers)
        except NoResponders:
            message = (
                "there is no such bucket (nats-site bucket makes it), or the server keeps none"
            )
            raise OSError(0, message, self._name) from None
        except LinkError as error:
            raise OSError(0, str(error), self._name) from None

    @property
    def _name(self) -> str:
        return f"the bucket {self._bucket}"

    def _error(self, reason: Any = None) -> OSError:
        return OSError(0, one_line(str(reason or "answers what is no answer"), 100), self._name)
