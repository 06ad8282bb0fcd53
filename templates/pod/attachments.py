"""ConfigMaps, Secrets and interLink's projected volumes, decoded.

Keys become file names at the site, so a key that could leave its directory is refused here already.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Callable

from templates.common.errors import PodRejected
from templates.common.validation import text_at, wrong
from templates.pod.model import Content

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_NO_KEY = "has a key that is not a file name"
_NO_PATH = "has a path that leaves the volume"


@lru_cache(maxsize=1024)
def _matches_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None and text != "." and not text.startswith("..")


def _is_key(text: str) -> bool:
    return len(text) <= 253 and _matches_key(text)


def _is_path(text: str) -> bool:
    return text != "" and text[0] != "/" and "\0" not in text and ".." not in text.split("/")


def _decode_base64(text: str) -> bytes:
    """Strict, but for line breaks, which Go allows. The decoder itself skips over foreign bytes."""
    if "\n" in text or "\r" in text:
        text = text.replace("\n", "").replace("\r", "")
    data = a2b_base64(text)
    if len(text) != (len(data) + 2) // 3 * 4:
        raise ValueError("not base64")
    return data


_Decode = Callable[[str], bytes]
_WHAT_IS_WRONG: Mapping[_Decode, str] = {
    str.encode: "is not valid Unicode (a lone surrogate)",
    _decode_base64: "is not valid base64",
}


def _read_data(
    thing: Mapping[str, Any], field: str, where: str, decode: _Decode, is_path: bool = False
) -> dict[str, bytes]:
    values = thing.get(field)
    if values is None:
        return {}
    if type(values) is not dict:
        raise wrong(f"{where}.{field}", "an object", values)
    if all(map(_is_path if is_path else _is_key, values)):
        try:
            return {key: decode(text) for key, text in values.items()}
        except (AttributeError, TypeError, ValueError):
            pass  # what it is, is found one by one
    return _read_one_by_one(values, f"{where}.{field}", decode, is_path)


def _read_one_by_one(
    values: Mapping[str, Any], where: str, decode: _Decode, is_path: bool
) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for key, value in values.items():
        if not (_is_path(key) if is_path else _is_key(key)):
            rule = _NO_PATH if is_path else _NO_KEY
            raise PodRejected(where, f"{rule}: {key[:80] or 'an empty one'}")
        text = "" if value is None else value  # as Go reads it
        if type(text) is not str:
            raise wrong(f"{where}['{key}']", "a string", text)
        try:
            found[key] = decode(text)
        except ValueError:
            raise PodRejected(f"{where}['{key}']", _WHAT_IS_WRONG[decode]) from None
    return found


def name_of(thing: Mapping[str, Any], where: str) -> str:
    """The name in the metadata; refuses an object that has none."""
    metadata = thing.get("metadata")
    name = metadata.get("name") if type(metadata) is dict else None
    if type(name) is str and name:
        return name
    raise wrong(f"{where}.metadata.name", "a name", name)


def read_text_data(thing: Mapping[str, Any], where: str) -> Content:
    """A ConfigMap without ``binaryData``, which variables cannot be taken from."""
    return Content(_read_data(thing, "data", where, str.encode))


def read_config_map(thing: Mapping[str, Any], where: str) -> Content:
    """A ConfigMap with ``data`` and ``binaryData`` together."""
    data = _read_data(thing, "data", where, str.encode)
    if "binaryData" in thing:
        data.update(_read_data(thing, "binaryData", where, _decode_base64))
    return Content(data)


def read_secret(thing: Mapping[str, Any], where: str) -> Content:
    """A Secret; ``stringData`` wins over ``data``, as it does in the API server."""
    data = _read_data(thing, "data", where, _decode_base64)
    if "stringData" in thing:
        data.update(_read_data(thing, "stringData", where, str.encode))
    return Content(data, text_at(thing, "type", where))


def read_projected(thing: Mapping[str, Any], where: str) -> dict[str, bytes]:
    """A projected volume as interLink resolved it: the keys are paths in the volume."""
    data = _read_data(thing, "data", where, str.encode, is_path=True)
    if "binaryData" in thing:
        data.update(_read_data(thing, "binaryData", where, _decode_base64, is_path=True))
    return data
