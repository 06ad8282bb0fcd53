"""A shared record in a bucket of NATS's key-value store: one message of a stream.

It is read and written by the stream's own subjects, with the rights for that bucket alone
(``templates/nats/permissions.py``); no site has the right to create buckets.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Optional

from submitter.common.nats_request import AskNats
from templates.common.errors import one_line
from templates.nats.permissions import key_of_bucket, request_to_bucket
from templates.nats.requests import LinkError, NoResponders

NO_MESSAGE = 10037  # the server's error code if the key was never written
WRONG_LAST_SEQUENCE = (10071, 10164)  # its codes if the version is not the last one
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_NO_VERSION = "0"  # the version of a key that was never written


class BucketRecord:
    """One key of an existing bucket; administrators of the server can read it, too."""

    def __init__(self, ask: AskNats, bucket: str, key: str) -> None:
        self._ask, self._bucket = ask, bucket
        self._subject = key_of_bucket(bucket, key)

    def read(self) -> tuple[bytes, str]:
        request = json.dumps({"last_by_subj": self._subject}).encode()
        response, code = self._request(request_to_bucket(self._bucket), request, {})
        if code == NO_MESSAGE:
            return b"", _NO_VERSION
        message = response.get("message")
        if code or not isinstance(message, dict) or not isinstance(message.get("seq"), int):
            raise self._error_of(response)
        try:
            content = base64.b64decode(message.get("data", ""), validate=True)
        except (TypeError, binascii.Error):
            raise self._error_of(response) from None
        return content, str(message["seq"])

    def swap(self, version: str, content: bytes) -> Optional[str]:
        response, code = self._request(self._subject, content, {_EXPECTED: version})
        if code in WRONG_LAST_SEQUENCE:
            return None
        if code or not isinstance(response.get("seq"), int):
            raise self._error_of(response)
        return str(response["seq"])

    def _request(
        self, subject: str, payload: bytes, headers: dict[str, str]
    ) -> tuple[dict[str, Any], int]:
        """Return the server's response and its error code; 0 if it is no error."""
        try:
            response = json.loads(self._ask(subject, payload, headers))
        except NoResponders:
            message = "there is no such bucket, or the server keeps none"
            raise OSError(0, message, self._name) from None
        except LinkError as error:
            raise OSError(0, str(error), self._name) from None
        except ValueError:
            response = None
        if not isinstance(response, dict):
            raise OSError(0, "answers what is no answer", self._name)
        failure = response.get("error")
        return response, failure.get("err_code", -1) if isinstance(failure, dict) else 0

    @property
    def _name(self) -> str:
        return f"the bucket {self._bucket}"

    def _error_of(self, response: dict[str, Any]) -> OSError:
        error = response.get("error")
        message = (
            error.get("description") if isinstance(error, dict) else "answers what is no answer"
        )
        return OSError(0, one_line(str(message), 100), self._name)
