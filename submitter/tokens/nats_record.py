"""A shared record in a bucket of NATS's key-value store: one message of a stream.

It is asked for by the stream's own subjects, with the rights for that bucket alone
(``templates/nats/permissions.py``); making buckets is a right that no site has.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Optional

from submitter.common.nats_request import AskNats
from templates.common.errors import one_line
from templates.nats.permissions import key_of_bucket, question_to_bucket
from templates.nats.requests import LinkError, NoResponders

NO_MESSAGE = 10037  # the server's number for: nobody has written there yet
OTHERS_WERE_QUICKER = (10071, 10164)  # its numbers for: that is not the last version
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_NEVER = "0"  # the version of what nobody has written


class BucketRecord:
    """Under one key of a bucket that is there; it is seen by who administers the server, too."""

    def __init__(self, ask: AskNats, bucket: str, key: str) -> None:
        self._ask, self._bucket = ask, bucket
        self._subject = key_of_bucket(bucket, key)

    def read(self) -> tuple[bytes, str]:
        question = json.dumps({"last_by_subj": self._subject}).encode()
        answer, number = self._answer(question_to_bucket(self._bucket), question, {})
        if number == NO_MESSAGE:
            return b"", _NEVER
        message = answer.get("message")
        if number or not isinstance(message, dict) or not isinstance(message.get("seq"), int):
            raise self._trouble(answer)
        try:
            content = base64.b64decode(message.get("data", ""), validate=True)
        except (TypeError, binascii.Error):
            raise self._trouble(answer) from None
        return content, str(message["seq"])

    def swap(self, version: str, content: bytes) -> Optional[str]:
        answer, number = self._answer(self._subject, content, {_EXPECTED: version})
        if number in OTHERS_WERE_QUICKER:
            return None
        if number or not isinstance(answer.get("seq"), int):
            raise self._trouble(answer)
        return str(answer["seq"])

    def _answer(
        self, where: str, payload: bytes, headers: dict[str, str]
    ) -> tuple[dict[str, Any], int]:
        """What the server says, and the number of its error; 0 if that is none."""
        try:
            answer = json.loads(self._ask(where, payload, headers))
        except NoResponders:
            words = "there is no such bucket, or the server keeps none"
            raise OSError(0, words, self._name) from None
        except LinkError as error:
            raise OSError(0, str(error), self._name) from None
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise OSError(0, "answers what is no answer", self._name)
        wrong = answer.get("error")
        return answer, wrong.get("err_code", -1) if isinstance(wrong, dict) else 0

    @property
    def _name(self) -> str:
        return f"the bucket {self._bucket}"

    def _trouble(self, answer: dict[str, Any]) -> OSError:
        error = answer.get("error")
        words = error.get("description") if isinstance(error, dict) else "answers what is no answer"
        return OSError(0, one_line(str(words), 100), self._name)
