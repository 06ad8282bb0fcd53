"""Types of the fields of messages that allow less than their Python type, and their readers.

``protocol/message_schema.py`` reads a field that is annotated with one of these by the function in
it. The readers for plain types are in ``validation.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from templates.common.errors import WireError, one_line
from templates.common.names import check_token, is_label, is_subdomain
from templates.common.quantity import quantities_at
from templates.common.validation import object_at, text_at

LARGEST_NUMBER = 2**63 - 1
LONGEST_TEXT = 8192  # characters; a termination message has 4096, and may stand behind another

INLINE = "inline"
"""Of a message in a message: its fields stand beside those of the other."""


def count_at(holder: Mapping[str, Any], key: str, where: str, minimum: int = 0) -> int:
    """Return a whole number; ``minimum``, or 0 if that is less, when absent."""
    value = holder.get(key, max(minimum, 0))
    if type(value) is not int or not minimum <= value <= LARGEST_NUMBER:
        raise WireError(f"{where}.{key}", f"must be a whole number of at least {minimum}")
    return value


def counts_at(holder: Mapping[str, Any], key: str, where: str) -> dict[str, int]:
    """Return an object of whole numbers; an empty one when absent."""
    found = object_at(holder, key, where)
    return {name: count_at(found, name, f"{where}.{key}") for name in found}


def positive_at(holder: Mapping[str, Any], key: str, where: str) -> int:
    """Return a whole number of at least 1; 1 when absent."""
    return count_at(holder, key, where, 1)


def count_or_all_at(holder: Mapping[str, Any], key: str, where: str) -> int:
    """Return a whole number, or -1 for all; -1 when absent."""
    return count_at(holder, key, where, -1) if key in holder else -1


def exit_code_at(holder: Mapping[str, Any], key: str, where: str) -> int:
    """Return a whole number of 32 bits; 0 when absent."""
    code = holder.get(key, 0)
    if type(code) is not int or not -(2**31) <= code < 2**31:
        raise WireError(f"{where}.{key}", "must be a whole number of 32 bits")
    return code


def token_at(holder: Mapping[str, Any], key: str, where: str) -> str:
    """Return a token of a NATS subject."""
    return check_token(f"{where}.{key}", holder.get(key), WireError)


def line_at(holder: Mapping[str, Any], key: str, where: str) -> str:
    """Return a text on one line; empty when absent."""
    return one_line(text_at(holder, key, where))


def cut_text_at(holder: Mapping[str, Any], key: str, where: str) -> str:
    """Return a text, the end of a long one cut off; empty when absent."""
    text = text_at(holder, key, where)
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT]


def namespace_at(holder: Mapping[str, Any], key: str, where: str) -> str:
    """Return the name of a namespace; empty when absent."""
    text = text_at(holder, key, where)
    if text and not is_label(text):
        raise WireError(f"{where}.{key}", "must be the name of a namespace")
    return text


def pod_name_at(holder: Mapping[str, Any], key: str, where: str) -> str:
    """Return the name of a pod; empty when absent."""
    text = text_at(holder, key, where)
    if text and not is_subdomain(text):
        raise WireError(f"{where}.{key}", "must be the name of a pod")
    return text


ExitCode = Annotated[int, exit_code_at]
Positive = Annotated[int, positive_at]
CountOrAll = Annotated[int, count_or_all_at]
Token = Annotated[str, token_at]
Line = Annotated[str, line_at]
CutText = Annotated[str, cut_text_at]
Namespace = Annotated[str, namespace_at]
PodName = Annotated[str, pod_name_at]
Quantities = Annotated[Mapping[str, str], quantities_at]
