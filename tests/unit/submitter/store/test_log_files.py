"""Which bytes of a log are asked for, against the plain way of finding out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from submitter.store import log_files
from submitter.store.log_files import (
    LogWindow,
    Stamper,
    list_starts,
    parse_cursor,
    since_offset,
    tail_offset,
)


def plain_tail(content: bytes, lines: int) -> bytes:
    found = content.split(b"\n")
    ended = found.pop() if found[-1] == b"" else None
    text = b"\n".join(found[-lines:] if lines else [])
    return text + (b"\n" if ended is not None and lines and content else b"")


def tail(path: Path, lines: int) -> bytes:
    return path.read_bytes()[tail_offset(str(path), lines) :]


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\n\n", b"a", b"a\n", b"a\nb", b"\na\n\nb\n"])
@pytest.mark.parametrize("lines", [0, 1, 2, 3, 100])
def test_tails(tmp_path: Path, content: bytes, lines: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    assert tail(path, lines) == plain_tail(content, lines)


def test_tails_of_random_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "CHUNK", 7)
    chance = random.Random(1)
    path = tmp_path / "log"
    for _ in range(300):
        content = bytes(chance.choice(b"ab\n") for _ in range(chance.randrange(60)))
        path.write_bytes(content)
        lines = chance.randrange(12)
        assert tail(path, lines) == plain_tail(content, lines), (content, lines)


def test_since_a_second_of_the_index(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthree and\nmore\nnew\n")
    (tmp_path / "log.idx").write_text("100 8\n200 13\n300 23\ntorn")
    for since_ms, expected in (
        (0, b"one\ntwo\nthree and\nmore\nnew\n"),
        (100_500, b"one\ntwo\nthree and\nmore\nnew\n"),
        (101_000, b"three and\nmore\nnew\n"),
        (200_000, b"three and\nmore\nnew\n"),
        (201_000, b"more\nnew\n"),  # what was written in that second began before it
        (301_000, b"new\n"),
    ):
        assert path.read_bytes()[since_offset(str(path), since_ms) :] == expected, since_ms


def test_times_stand_before_lines_and_only_there(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\r still two\nlast")
    (tmp_path / "log.idx").write_text("1000000000 4\n1000000001 23\n")
    whole = Stamper(str(path), LogWindow(0, 0, False)).stamped(path.read_bytes())
    assert whole == (
        b"2001-09-09T01:46:40.000000000Z one\n"
        b"2001-09-09T01:46:41.000000000Z two\r still two\n"
        b"2001-09-09T01:46:41.000000000Z last"
    )
    stamper = Stamper(str(path), LogWindow(0, 0, False))
    pieces = [stamper.stamped(path.read_bytes()[at : at + 1]) for at in range(23)]
    assert b"".join(pieces) == whole
    later = Stamper(str(path), LogWindow(0, 6, True))
    assert later.stamped(path.read_bytes()[6:]) == whole[whole.index(b"o\r") :]


def test_starts(tmp_path: Path) -> None:
    assert list_starts(str(tmp_path), "main") == []
    (tmp_path / "logs").mkdir()
    for name in ("main.0.log", "main.10.log", "main.2.log", "main.2.log.idx", "other.7.log"):
        (tmp_path / "logs" / name).touch()
    assert list_starts(str(tmp_path), "main") == [0, 2, 10]


@pytest.mark.parametrize("text", ["", "1", "1.2", "a.b.c", "-1.0.0", "1.2.3.4", "1.².0", "1..0"])
def test_cursors_of_others(text: str) -> None:
    assert parse_cursor(text) is None


def test_a_cursor_is_read_back() -> None:
    window = LogWindow(3, 2**40, True)
    assert parse_cursor(str(window)) == window
