"""Hostile bytes: an input with something in it cut, doubled, exchanged or put in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

TOKENS: tuple[bytes, ...] = (
    *(b'"', b"'", b"\\", b",", b":", b"=", b"[", b"]", b"{", b"}", b"-", b"\n", b"\r", b"\t", b" "),
    *(b"\0", b"\xff", b"\xc3\xa9", b"\xe2\x80\xae", b"\xf0\x9f\x98\x80", b"\xef\xbb\xbf"),
    *(b"\\u0000", b"\\ud800", b"\\udc00\\ud800", b"\\u2028", b"\\n", b"\\/"),
    *(b"null", b"true", b"NaN", b"Infinity", b"-Infinity", b"~", b"off", b"0x10", b"0o10", b"1:30"),
    *(b"0", b"-1", b"1e400", b"-0.0", b"9" * 20, b"9" * 5000, b"18446744073709551616", b"1.5"),
    *(
        b"[]",
        b"{}",
        b'""',
        b"[" * 3000,
        b'{"a":' * 3000,
        b'{"v":1,"v":2}',
        b"&a [*a]",
        b"<<: {a: b}",
    ),
    *(
        b"../..",
        b"/etc/passwd",
        b"$(touch F)",
        b"`id`",
        b"*",
        b">",
        b"$(A)",
        b"$$",
        b"%s",
        b"\x1b[2J",
    ),
)


def mutants(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """So many of them; the same ones for the same seed."""
    random_ = random.Random(seed)
    for _ in range(count):
        made = random_.choice(seeds)
        for _ in range(random_.choice((1, 1, 1, 2, 3, 5))):
            made = _change(made, random_.choice(seeds), random_)
        yield made


def _change(text: bytes, other: bytes, random_: random.Random) -> bytes:
    start = random_.randint(0, len(text))
    end = min(len(text), start + random_.choice((0, 1, 1, 2, 4, 16, 64)))
    kind = random_.randrange(7)
    if kind == 0:  # cut out
        return text[:start] + text[end:]
    if kind == 1:  # end early
        return text[:start]
    if kind == 2:  # say twice
        return text[:end] + text[start:]
    if kind == 3 and text:  # exchange one byte
        return text[: start - 1] + bytes([random_.randrange(256)]) + text[start:]
    if kind == 4:  # go on as another
        return text[:start] + other[random_.randint(0, len(other)) :]
    return text[:start] + random_.choice(TOKENS) + text[end:]
