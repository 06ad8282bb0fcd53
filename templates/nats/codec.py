"""Encode messages: JSON with a version, compressed when large, in chunks when larger.

Bytes, such as files, stand behind the JSON and a new line; those that many jobs have in common,
once.

Nothing that arrives is trusted: what cannot be read is a ``WireError`` with one line, and a small
message cannot expand into a larger one than its kind may be (``subjects.py``).
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from templates.common.errors import PodRejected, WireError
from templates.common.json_codec import count_values, dump_json, load_json
from templates.common.validation import object_at, text_at

VERSION = 1
COMPRESS_ABOVE = 256 * 1024  # below, the time for it costs more than the bytes
DEDUPLICATE_ABOVE = 256  # bytes of an attachment; smaller ones are not worth comparing
LARGEST = 128 * 1024 * 1024  # of a message as JSON; a pod's ConfigMaps and Secrets stay far below
MOST_VALUES = 5_000_000  # in one message: as Python objects they take far more memory than as JSON
BYTES_OF_VALUE = 8  # and no more than one in so many bytes of the largest message of a kind

LONGEST_ANNOUNCEMENT = 1024

ATTACHMENTS = "attachments"  # the key of the bytes in a message

_SIZES = "sizes"  # of the attachments, in the JSON before them
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half a letter, unless the other half is beside it
_ZLIB = 0x78  # the first byte of what zlib writes; JSON begins with a brace


class Parts(NamedTuple):
    """The announcement of a message too large for one payload: where its parts are, and a hash."""

    id: str
    pieces: int
    size: int
    sha256: str


def encode(message: Mapping[str, Any], *, compress: bool = True) -> bytes:
    """Return a message as bytes; its ``attachments`` stand as they are behind the JSON."""
    if ATTACHMENTS in message:
        raw = _with_attachments(message, message[ATTACHMENTS])
    else:
        raw = dump_json({"v": VERSION, **message})
    return zlib.compress(raw, 1) if compress and len(raw) > COMPRESS_ABOVE else raw


def _with_attachments(message: Mapping[str, Any], attachments: Sequence[bytes]) -> bytes:
    rest = {key: value for key, value in message.items() if key != ATTACHMENTS}
    sizes: list[int] = []
    once: list[bytes] = []
    first: dict[bytes, int] = {}
    for number, content in enumerate(attachments):
        before = first.setdefault(content, number) if len(content) > DEDUPLICATE_ABOVE else number
        sizes.append(len(content) if before == number else -1 - before)
        if before == number:
            once.append(content)
    return b"".join((dump_json({"v": VERSION, _SIZES: sizes, **rest}), b"\n", *once))


def decode(raw: bytes, largest: int = LARGEST) -> dict[str, Any]:
    """Return the message in some bytes; refuse a larger one, and another version by its number."""
    if len(raw) > largest:
        raise WireError("message", f"is larger than {largest} bytes")
    if raw[:1] and raw[0] == _ZLIB:
        raw = _decompressed(raw, largest)
    head, newline, attached = raw.partition(b"\n")
    message = _head(head, min(MOST_VALUES, largest // BYTES_OF_VALUE))
    if newline:
        message[ATTACHMENTS] = _cut(attached, message.pop(_SIZES, None), largest)
    return message


def _cut(attached: bytes, sizes: object, largest: int) -> list[bytes]:
    """Return the attachments; a negative size, -1 - n, stands for a copy of the nth."""
    if type(sizes) is not list or not all(type(size) is int for size in sizes):
        raise WireError(f"message.{_SIZES}", "must be the sizes of the attachments")
    if sum([size for size in sizes if size > 0]) != len(attached):
        raise WireError(f"message.{_SIZES}", f"are not those of {len(attached)} bytes")
    found: list[bytes] = []
    at = 0
    for number, size in enumerate(sizes):
        if size < -number:
            raise WireError(f"message.{_SIZES}", "must name attachments that came before")
        found.append(attached[at : at + size] if size >= 0 else found[-1 - size])
        at += max(size, 0)
    if sum(map(len, found)) > largest:
        raise WireError(f"message.{_SIZES}", f"must be of at most {largest} bytes together")
    return found


def _head(raw: bytes, most: int) -> dict[str, Any]:
    if len(raw) > most and count_values(raw) > most:
        raise WireError("message", f"has more than {most} values")
    try:
        message = load_json(raw)
        if _SURROGATE.search(raw):
            json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise WireError("message", f"is not JSON: {error}") from None
    if type(message) is not dict:
        raise WireError("message", "must be an object")
    version = message.get("v")
    if type(version) is not int or version != VERSION:
        raise WireError("message", f"has version {version!r}; this program speaks {VERSION}")
    return message


def _decompressed(raw: bytes, largest: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(raw, largest)
    except zlib.error as error:
        raise WireError("message", f"cannot be decompressed: {error}") from None
    if not unpacker.eof:
        raise WireError("message", f"is cut off, or larger than {largest} bytes")
    return content


# --- parts --------------------------------------------------------------------------------------


def describe_parts(identity: str, raw: bytes, part_size: int) -> Parts:
    """Return the announcement of a message in parts of this size."""
    pieces = -(-len(raw) // part_size)
    return Parts(identity, pieces, len(raw), hashlib.sha256(raw).hexdigest())


def write_announcement(parts: Parts) -> bytes:
    """Return the small message that stands for a large one."""
    return encode({"parts": parts._asdict()})


def read_announcement(raw_message: bytes, largest: int = LARGEST) -> Optional[Parts]:
    """Return the parts that a message announces; None if it is the whole message itself."""
    if len(raw_message) > LONGEST_ANNOUNCEMENT or b'"parts"' not in raw_message:
        return None
    message = decode(raw_message)
    if "parts" not in message:
        return None
    where = "message.parts"
    try:
        raw = object_at(message, "parts", "message")
        identity, sha256 = text_at(raw, "id", where), text_at(raw, "sha256", where)
    except PodRejected as error:
        raise WireError(error.field, error.reason) from None
    pieces, size = raw.get("pieces"), raw.get("size")
    if type(pieces) is not int or type(size) is not int or not 0 < pieces <= size <= largest:
        raise WireError(where, f"must have pieces and size, of at most {largest} bytes")
    return Parts(identity, pieces, size, sha256)


def split(raw: bytes, part_size: int) -> Iterator[bytes]:
    """Yield the parts, in order."""
    return (raw[start : start + part_size] for start in range(0, len(raw), part_size))


def check_piece(parts: Parts, pieces: Sequence[bytes], piece: bytes) -> None:
    """Refuse a part that cannot follow those before it: all but the last are of one size."""
    size = len(pieces[0] if pieces else piece)
    expected = min(size, parts.size - size * len(pieces))
    if not piece or len(piece) != expected or -(-parts.size // size) != parts.pieces:
        raise WireError("message", "its parts are not what was announced")


def join(parts: Parts, pieces: list[bytes]) -> bytes:
    """Return the message from its parts; refuse anything but what was announced."""
    raw = b"".join(pieces)
    if len(raw) != parts.size or hashlib.sha256(raw).hexdigest() != parts.sha256:
        raise WireError("message", "its parts are not what was announced")
    return raw
