"""Messages as bytes, and bytes that are none."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from templates.common.errors import WireError
from templates.nats import codec, subjects
from templates.nats.codec import (
    Parts,
    decode,
    describe_parts,
    encode,
    join,
    read_announcement,
    split,
    write_announcement,
)


def complaint(raw: bytes) -> str:
    with pytest.raises(WireError) as caught:
        decode(raw)
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 600
    return line


@pytest.mark.parametrize(
    "message",
    [{}, {"a": [1, {"b": None}]}, {"text": "é\u202e\U0001f600\n"}, {"large": "x" * 200_000}],
)
@pytest.mark.parametrize("compress", [True, False])
def test_what_is_encoded_is_decoded(message: dict[str, Any], compress: bool) -> None:
    assert decode(encode(message, compress=compress)) == {"v": 1, **message}


def test_only_large_messages_are_compressed() -> None:
    assert encode({"x": "y" * 1000})[:1] == b"{"
    assert len(encode({"x": "y" * 300_000})) < 2000
    assert encode({"x": "y" * 300_000}, compress=False)[:1] == b"{"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"v": ' + b"1" * 5000 + b"}", "message: "),
        (b"[]", "must be an object"),
        (b"null", "must be an object"),
        (b'"v"', "must be an object"),
        (b"{}", "has version None; this program speaks 1"),
        (b'{"v": 2}', "has version 2; this program speaks 1"),
        (b'{"v": "1"}', "has version '1'; this program speaks 1"),
        (b'{"v": 1, "a": "\\ud800"}', "is not JSON"),
        (b'{"v": 1, "\\udfff": 1}', "is not JSON"),
        (b'{"v": 1, "a": ["\\ude00\\ud83d"]}', "is not JSON"),
        (b"x", "is cut off"),
        (b"xyz", "cannot be decompressed"),
        (b"\x78", "is cut off"),
        (b"\x78\x9c", "is cut off"),
        (b"\x78\x00garbage", "cannot be decompressed"),
        (zlib.compress(b'{"v": 1}')[:-3], "is cut off"),
        (zlib.compress(b"[]"), "must be an object"),
        (zlib.compress(zlib.compress(b"{}")), "is not JSON"),
    ],
)
def test_what_is_no_message_is_one_line(raw: bytes, words: str) -> None:
    assert words in complaint(raw)


def test_two_halves_of_a_letter_are_a_letter() -> None:
    assert decode(b'{"v": 1, "a": "\\ud83d\\ude00"}')["a"] == "\U0001f600"


@pytest.mark.parametrize("pack", [bytes, zlib.compress], ids=["plain", "compressed"])
@pytest.mark.parametrize("row", subjects.TABLE, ids=[row.kind for row in subjects.TABLE])
def test_no_message_is_larger_than_its_kind_may_be(
    row: subjects.SubjectRow, pack: Callable[[bytes], bytes]
) -> None:
    """Whatever it is on the wire, no more is ever made of it in memory."""
    for largest in {row.largest, row.largest_answer} - {codec.LARGEST}:
        fits = pack(b'{"v": 1}' + b" " * (largest - 8))
        too_large = pack(b'{"v": 1}' + b" " * (largest - 7))
        bomb = pack(b" " * (32 * largest))
        values = pack(b'{"v": 1, "a": [' + b"[]," * (largest // 4) + b"[]]}")
        attached = pack(b'{"v":1,"sizes":[%d,-1]}\nx' % largest)
        assert decode(fits, largest) == {"v": 1}
        for raw in (too_large, bomb, values, attached):
            tracemalloc.start()
            with pytest.raises(WireError):
                decode(raw, largest)
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert most < 2.2 * largest + 100_000


def test_a_message_cannot_fill_the_memory_with_little_things() -> None:
    bomb = zlib.compress(b'{"v":1,"a":[' + b"[]," * 5_000_000 + b"[]]}")
    assert len(bomb) < 100_000
    assert "more than 5000000 values" in complaint(bomb)


@pytest.mark.parametrize("version", ["true", "1.0", "[1]", "null"])
def test_only_one_is_version_one(version: str) -> None:
    assert "has version" in complaint(b'{"v": %s}' % version.encode())


def test_noise_is_refused(count: int = 20_000) -> None:
    random_ = random.Random(1)
    good = encode({"x": "y" * 70_000})
    for _ in range(count):
        noise = bytearray(good if random_.random() < 0.5 else random_.randbytes(40))
        for _ in range(3):
            noise[random_.randrange(min(len(noise), 40))] = random_.randrange(256)
        try:
            assert isinstance(decode(bytes(noise)), dict)
        except WireError as error:
            assert str(error).isprintable()


# --- parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "pieces"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_parts_make_up_the_message(size: int, pieces: int) -> None:
    raw = os.urandom(size)
    parts = describe_parts("id", raw, 10)
    cut = list(split(raw, 10))
    assert (parts.pieces, len(cut)) == (pieces, pieces)
    assert join(parts, cut) == raw
    assert read_announcement(write_announcement(parts)) == parts


def test_an_ordinary_message_announces_nothing() -> None:
    for raw in (b'{"v":1,"part":{}}', b'{"v":1,"a":"parts"}', b'{"v":1,"a":["parts"]}'):
        assert read_announcement(raw) is None


@pytest.mark.parametrize(
    "wrong",
    [
        [b"0123456789", b""],
        [b"0123456789"],
        [b"", b"0123456789"],
        [b"1", b"0123456789"],
        [],
    ],
)
def test_other_parts_than_announced_are_refused(wrong: list[bytes]) -> None:
    parts = describe_parts("id", b"0123456789a", 10)
    with pytest.raises(WireError):
        join(parts, wrong)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        "x",
        {},
        {"id": 1, "pieces": 1, "size": 1, "sha256": ""},
        {"id": "x", "pieces": 1, "size": 1, "sha256": 5},
        {"id": "x", "pieces": 0, "size": 1, "sha256": ""},
        {"id": "x", "pieces": 2, "size": 1, "sha256": ""},
        {"id": "x", "pieces": -1, "size": 1, "sha256": ""},
        {"id": "x", "pieces": True, "size": 1, "sha256": ""},
        {"id": "x", "pieces": 1, "size": 1.0, "sha256": ""},
        {"id": "x", "pieces": 1, "size": codec.LARGEST + 1, "sha256": ""},
        {"id": "x", "pieces": 10**30, "size": 10**31, "sha256": ""},
    ],
)
def test_announcements_that_cannot_be_are_refused(raw: object) -> None:
    with pytest.raises(WireError) as caught:
        read_announcement(json.dumps({"v": 1, "parts": raw}).encode())
    assert str(caught.value).isprintable()


def test_an_announcement_is_small() -> None:
    assert len(write_announcement(Parts("x" * 32, 10**6, codec.LARGEST, "0" * 64))) < 300


# --- attachments --------------------------------------------------------------------------------


@pytest.mark.parametrize("attachments", [[], [b""], [b"\n{", b"", b"\x00\xff" * 50_000]])
def test_attachments_arrive_to_the_byte(attachments: list[bytes]) -> None:
    message = {"a": "x\ny", "attachments": attachments}
    assert codec.decode(codec.encode(message)) == {"v": 1, **message}


def test_what_is_attached_twice_travels_once() -> None:
    large, small = b"x" * 1000, b"y"
    attachments = [large, small, large, b"z" * 1000, small, large]
    raw = codec.encode({"attachments": attachments})
    assert raw.startswith(b'{"v":1,"sizes":[1000,1,-1,1000,1,-1]}\n')
    assert raw.count(large) == 1
    assert codec.decode(raw)["attachments"] == attachments


def test_a_small_message_does_not_unfold_into_a_huge_one() -> None:
    raw = codec.encode({"attachments": [b"x" * 1000] * 10})
    with pytest.raises(WireError, match="at most 9999 bytes together"):
        codec.decode(raw, 9_999)


def test_attachments_are_not_escaped() -> None:
    assert codec.encode({"attachments": [b'"\n']}) == b'{"v":1,"sizes":[2]}\n"\n'


@pytest.mark.parametrize(
    "raw",
    [
        b'{"v":1}\nx',
        b'{"v":1,"sizes":1}\nx',
        b'{"v":1,"sizes":[2]}\nx',
        b'{"v":1,"sizes":[2,-1]}\nx',
        b'{"v":1,"sizes":[-1,1]}\nx',
        b'{"v":1,"sizes":[1,-3]}\nx',
        b'{"v":1,"sizes":[true]}\nx',
        b'{"v":1,"sizes":["1"]}\nx',
    ],
)
def test_attachments_that_are_not_those_announced_are_refused(raw: bytes) -> None:
    with pytest.raises(WireError, match=r"message\.sizes"):
        codec.decode(raw)
