"""Kubernetes quantities (``500m``, ``1.5Gi``, ``1e3``), exactly and without its client.

Rounding is always up, as Kubernetes rounds: a job may get a little more than asked, never less.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, Optional

from templates.common.errors import PodRejected
from templates.common.validation import object_at, wrong_type

_LONGEST = 64  # characters; also keeps the caches small
_LARGEST_EXPONENT = 30  # 10**30 is beyond any machine; without a bound 1e999999999 fills the memory

_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_FORM = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)"
)


def _parse(text: str) -> Optional[Fraction]:
    if text.isdigit() and text.isascii():  # the most common form needs no expression
        return Fraction(int(text))
    form = _FORM.fullmatch(text)
    if form is None:
        return None
    number = Fraction(form["number"])
    if form["exponent"] is None:
        return number * _SUFFIXES[form["suffix"] or ""]
    exponent = int(form["exponent"])
    if abs(exponent) > _LARGEST_EXPONENT:
        return None
    return number * Fraction(10) ** exponent


@lru_cache(maxsize=4096)
def _value(text: str) -> Optional[Fraction]:
    return _parse(text)


@lru_cache(maxsize=4096)
def _milli(text: str) -> Optional[int]:
    value = _parse(text)
    return None if value is None else ceil(value * 1000)


@lru_cache(maxsize=4096)
def _whole(text: str) -> Optional[int]:
    value = _parse(text)
    return None if value is None else ceil(value)


def _malformed(text: str, where: str) -> PodRejected:
    return PodRejected(where, f"not a quantity: {text[:_LONGEST] or 'an empty text'}")


def is_quantity(text: str) -> bool:
    """Return whether the text is a quantity, and not negative: all that a pod may ask for."""
    if len(text) > _LONGEST:
        return False
    value = _milli(text)
    return value is not None and value >= 0


def parse(text: str, where: str = "") -> Fraction:
    """Return the exact value."""
    value = _value(text) if len(text) <= _LONGEST else None
    if value is None:
        raise _malformed(text, where)
    return value


def cpu_milli(text: str, where: str = "") -> int:
    """Return thousandths of a CPU, rounded up."""
    value = _milli(text) if len(text) <= _LONGEST else None
    if value is None:
        raise _malformed(text, where)
    return value


def byte_count(text: str, where: str = "") -> int:
    """Return bytes, rounded up."""
    value = _whole(text) if len(text) <= _LONGEST else None
    if value is None:
        raise _malformed(text, where)
    return value


def count(text: str, where: str = "") -> int:
    """Return a whole number (of GPUs, ...), rounded up."""
    return byte_count(text, where)


def at_most(text: str, limit: int) -> str:
    """Return the quantity, or the limit if that is less."""
    return text if parse(text) <= limit else str(limit)


def as_text(value: object, where: str) -> str:
    """Return a quantity of a manifest as text: YAML reads ``cpu: 2`` as a number. None is empty."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    if type(value) is int or type(value) is float:
        return str(value)
    raise wrong_type(where, "a quantity", value)


def quantities_at(holder: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    """Return an object of quantities, checked and as written; an empty one when absent."""
    found = object_at(holder, key, where)
    for name, value in found.items():
        if type(value) is not str:
            return _rewritten(found, f"{where}.{key}")
        if not is_quantity(value):
            raise _refused(value, f"{where}.{key}['{name}']")
    return found


def _rewritten(found: Mapping[str, Any], where: str) -> dict[str, str]:
    texts = {name: as_text(value, f"{where}['{name}']") for name, value in found.items()}
    for name, text in texts.items():
        if not is_quantity(text):
            raise _refused(text, f"{where}['{name}']")
    return texts


def _refused(text: str, where: str) -> PodRejected:
    if parse(text, where) < 0:
        return PodRejected(where, "must not be negative")
    return _malformed(text, where)
