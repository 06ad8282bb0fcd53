"""ConfigMaps, Secrets and interLink's projected volumes, decoded.

Keys become file names at the site, so a key that could leave its directory is refused here.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Callable

from templates.common.errors import PodRejected
from templates.common.validation import text_at, wrong_type
from templates.pod.model import Content

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_KEY_ERROR = "has a key that is not a file name"
_PATH_ERROR = "has a path that leaves the volume"


@lru_cache(maxsize=1024)
def _matches_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None and text != "." and not text.startswith("..")


def _is_key(text: str) -> bool:
    return len(text) <= 253 and _matches_key(text)


def _is_path(text: str) -> bool:
    return text != "" and text[0] != "/" and "\0" not in text and ".." not in text.split("/")


def _decode_base64(text: str) -> bytes:
    """Decode strictly, but for line breaks, which Go allows; the decoder skips foreign bytes."""
    if "\n" in text or "\r" in text:
        text = text.replace("\n", "").replace("\r", "")
    data = a2b_base64(text)
    if len(text) != (len(data) + 2) // 3 * 4:
        raise ValueError("not base64")
    return data


_Decode = Callable[[str], bytes]
_DECODING_ERRORS: Mapping[_Decode, str] = {
    str.encode: "is not valid Unicode (a lone surrogate)",
    _decode_base64: "is not valid base64",
}


def _read_data(
    raw: Mapping[str, Any], part: str, field: str, decode: _Decode, is_path: bool = False
) -> dict[str, bytes]:
    values = raw.get(part)
    if values is None:
        return {}
    if type(values) is not dict:
        raise wrong_type(f"{field}.{part}", "an object", values)
    if all(map(_is_path if is_path else _is_key, values)):
        try:
            return {key: decode(text) for key, text in values.items()}
        except (AttributeError, TypeError, ValueError):
            pass  # which one it is, is found one by one
    return _read_one_by_one(values, f"{field}.{part}", decode, is_path)


def _read_one_by_one(
    values: Mapping[str, Any], field: str, decode: _Decode, is_path: bool
) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for key, value in values.items():
        if not (_is_path(key) if is_path else _is_key(key)):
            rule = _PATH_ERROR if is_path else _KEY_ERROR
            raise PodRejected(field, f"{rule}: {key[:80] or 'an empty one'}")
        text = "" if value is None else value  # as Go reads it
        if type(text) is not str:
            raise wrong_type(f"{field}['{key}']", "a string", text)
        try:
            found[key] = decode(text)
        except ValueError:
            raise PodRejected(f"{field}['{key}']", _DECODING_ERRORS[decode]) from None
    return found


def read_name(raw: Mapping[str, Any], field: str) -> str:
    """Return the name in the metadata; refuse an object that has none."""
    metadata = raw.get("metadata")
    name = metadata.get("name") if type(metadata) is dict else None
    if type(name) is str and name:
        return name
    raise wrong_type(f"{field}.metadata.name", "a name", name)


def read_text_data(raw: Mapping[str, Any], field: str) -> Content:
    """Read a ConfigMap without ``binaryData``, which variables cannot be taken from."""
    return Content(_read_data(raw, "data", field, str.encode))


def read_config_map(raw: Mapping[str, Any], field: str) -> Content:
    """Read a ConfigMap with ``data`` and ``binaryData`` together."""
    data = _read_data(raw, "data", field, str.encode)
    if "binaryData" in raw:
        data.update(_read_data(raw, "binaryData", field, _decode_base64))
    return Content(data)


def read_secret(raw: Mapping[str, Any], field: str) -> Content:
    """Read a Secret; ``stringData`` wins over ``data``, as it does in the API server."""
    data = _read_data(raw, "data", field, _decode_base64)
    if "stringData" in raw:
        data.update(_read_data(raw, "stringData", field, str.encode))
    return Content(data, text_at(raw, "type", field))


def read_projected(raw: Mapping[str, Any], field: str) -> dict[str, bytes]:
    """Read a projected volume as interLink resolved it: the keys are paths in the volume."""
    data = _read_data(raw, "data", field, str.encode, is_path=True)
    if "binaryData" in raw:
        data.update(_read_data(raw, "binaryData", field, _decode_base64, is_path=True))
    return data
