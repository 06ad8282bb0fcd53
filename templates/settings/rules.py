"""Rules for the values of a configuration: each returns the value, or says what is wrong.

Values end up in bash scripts, mount options and shebang lines of every job of the site, so what a
rule refuses is what could not stand there, or what a reader would expect to mean something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Callable

from marshmallow import ValidationError

from templates.common import quantity
from templates.common.errors import ConfigError, PodRejected
from templates.common.names import check_root
from templates.settings.types import CLAIM_VARIABLES, Choice, Kind, Whole

LONGEST = 64 * 1024  # characters of a text
LONGEST_BASH = 256 * 1024
LARGEST = 2**31 - 1  # bash and awk count that far everywhere


def check(rule: object, value: object) -> object:
    """Check one value against the rule of its field: a Kind, Choice, Whole, bool or object."""
    if isinstance(rule, Choice):
        return _one_of(rule, value)
    if isinstance(rule, Whole):
        return _whole(rule, value)
    if isinstance(rule, Kind):
        return _CHECKS[rule](_as_text(rule, value))
    if rule is object:
        return value
    if not isinstance(value, bool):
        raise ValidationError(f"must be true or false, not {kind_of(value)}")
    return value


def kind_of(value: object) -> str:
    """Return the type of a value, as error messages call it."""
    kinds = {type(None): "empty", bool: "a boolean", int: "a number", float: "a fraction"}
    kinds.update({str: "text", list: "a list", dict: "a mapping"})
    return kinds.get(type(value), f"a {type(value).__name__}")


def _one_of(rule: Choice, value: object) -> object:
    if value not in rule.values:
        raise ValidationError(f"must be one of {', '.join(rule.values)}")
    return value


def _whole(rule: Whole, value: object) -> int:
    if type(value) is not int:
        raise ValidationError(f"must be a whole number, not {kind_of(value)}")
    if not rule.minimum <= value <= LARGEST:
        raise ValidationError(f"must be from {rule.minimum} to {LARGEST}")
    return value


def _as_text(rule: Kind, value: object) -> str:
    if rule in (Kind.CPU, Kind.BYTES, Kind.QUANTITY) and type(value) in (int, float):
        return str(value)  # Kubernetes, too, takes a quantity without quotes
    if not isinstance(value, str):
        raise ValidationError(f"must be text, not {kind_of(value)}")
    longest = LONGEST_BASH if rule is Kind.BASH else LONGEST
    if len(value) > longest:
        raise ValidationError(f"must have at most {longest} characters, not {len(value)}")
    return value


def _text(text: str) -> str:
    if "\0" in text:
        raise ValidationError("must not hold a NUL character")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValidationError("must be valid Unicode")
    return text


def _bash(text: str) -> str:
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        raise ValidationError("must not hold control characters other than tabs and line ends")
    return _text(text)


def _line(text: str) -> str:
    if re.search(r"[\x00-\x1f\x7f-\x9f]", text):
        raise ValidationError("must be one line without control characters")
    return _text(text)


def _word(text: str) -> str:
    if re.search(r"\s", _line(text)):
        raise ValidationError("must not hold white space")
    return text


def _argument(text: str) -> str:
    if not text:
        raise ValidationError("must not be empty")
    return _line(text)


def _path(text: str) -> str:
    """Return an absolute path that fits into a mount option; no double or trailing slashes."""
    if not _line(text).startswith("/"):
        raise ValidationError("must be an absolute path")
    if re.search(r"[,:]", text):
        raise ValidationError("must not hold a comma or a colon")
    if "$" in text:
        raise ValidationError("must not hold $: no variables are filled in here")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValidationError("must not hold ..")
    return "/" + "/".join(parts)


def _path_or_empty(text: str) -> str:
    return _path(text) if text else text


def _program(text: str) -> str:
    return _path(_word(text))


def _place(text: str) -> str:
    return _word(text) if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) else _path_or_empty(text)


def _claim_path(text: str) -> str:
    names = "|".join(CLAIM_VARIABLES)
    if re.search(rf"\$(?!(?:{names})\b|\{{(?:{names})\}})", text):
        allowed = ", ".join(f"${name}" for name in CLAIM_VARIABLES)
        raise ValidationError(f"must not hold $, except for {allowed}")
    return _path(text.replace("$", "\ue000")).replace("\ue000", "$")


def _claim(text: str) -> str:
    if not re.fullmatch(r"([a-z0-9][-a-z0-9]*/)?[a-z0-9][-.a-z0-9]*", text):
        raise ValidationError("must be claim or namespace/claim")
    return text


def _variable(text: str) -> str:
    if not text or "=" in _line(text):
        raise ValidationError("must be the name of a variable")
    return text


def _variables(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_*?\[\]!^-]+", text):
        raise ValidationError("must be a shell pattern for names of variables")
    return text


def _quantity(text: str, count: Callable[[str], int]) -> str:
    try:
        amount = count(text)
    except PodRejected as error:
        raise ValidationError(error.reason) from None
    if amount <= 0:
        raise ValidationError("must be more than 0")
    return text


def _any_quantity(text: str) -> str:
    if not quantity.is_quantity(text):
        raise ValidationError(f"not a quantity: {text[:64] or 'an empty text'}")
    return text


def _token(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,63}", text):
        raise ValidationError("must be 1 to 63 letters, digits, dashes and underscores")
    return text


def _subject(text: str) -> str:
    try:
        return check_root("", text)
    except ConfigError as error:
        raise ValidationError(error.reason) from None


def _server(text: str) -> str:
    """Return a URL without credentials; errors do not repeat it, as it may hold some."""
    if not re.fullmatch(r"(wss|ws|tls|nats)://[^\s/?#]+(/[^\s?#]*)?", text):
        raise ValidationError("must be a wss://, ws://, tls:// or nats:// URL")
    if "@" in text:
        raise ValidationError("must not hold a user or a password: name their files below nats")
    return text


def _taint(text: str) -> str:
    name = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
    effect = "NoSchedule|PreferNoSchedule|NoExecute"
    if not re.fullmatch(rf"({name}/)?{name}(=({name})?)?:({effect})", text):
        raise ValidationError(
            "must be key=value:effect, the effect one of " + effect.replace("|", ", ")
        )
    return text


_CHECKS: Mapping[Kind, Callable[[str], str]] = {
    Kind.TEXT: _text,
    Kind.BASH: _bash,
    Kind.WORD: _word,
    Kind.ARGUMENT: _argument,
    Kind.PATH: _path,
    Kind.PATH_OR_EMPTY: _path_or_empty,
    Kind.PROGRAM: _program,
    Kind.PLACE: _place,
    Kind.CLAIM_PATH: _claim_path,
    Kind.CLAIM: _claim,
    Kind.VARIABLE: _variable,
    Kind.VARIABLES: _variables,
    Kind.CPU: lambda text: _quantity(text, quantity.cpu_milli),
    Kind.BYTES: lambda text: _quantity(text, quantity.byte_count),
    Kind.QUANTITY: _any_quantity,
    Kind.TOKEN: _token,
    Kind.SUBJECT: _subject,
    Kind.SERVER: _server,
    Kind.TAINT: _taint,
}
