"""A message described once: what its annotations say is what is read and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Optional

import pytest

from templates.common.errors import Located
from templates.common.message_fields import INLINE, ExitCode, Line, Positive, Token
from templates.protocol.message_schema import MessageSchema


class Inner(NamedTuple):
    code: ExitCode = 5
    text: str = "x"


class Beside(NamedTuple):
    colour: str
    end: Optional[Inner] = None


class Outer(NamedTuple):
    name: Token
    line: Line
    flag: bool
    count: int
    least: Positive
    maybe: Optional[Positive]
    some: Optional[tuple[str, ...]]
    texts: tuple[str, ...]
    text_map: Mapping[str, str]
    counts: Mapping[str, int]
    inner: Inner
    inners: tuple[Inner, ...]
    beside: Annotated[Beside, INLINE]


SCHEMA = MessageSchema(Outer, "m")
NOTHING = Outer("a", "", False, 0, 1, None, None, (), {}, {}, Inner(0, ""), (), Beside(""))
FULL = Outer(
    name="a",
    line="one line",
    flag=True,
    count=3,
    least=2,
    maybe=7,
    some=(),
    texts=("t",),
    text_map={"a": "b"},
    counts={"c": 1},
    inner=Inner(-9, "y"),
    inners=(Inner(), Inner(0, "")),
    beside=Beside("green", Inner(0, "")),
)


def test_absent_fields_are_empty_whatever_the_default_of_the_named_tuple() -> None:
    assert SCHEMA.read({"name": "a"}) == NOTHING


def test_what_reads_as_absent_is_not_written() -> None:
    assert SCHEMA.write(NOTHING) == {"name": "a"}
    assert SCHEMA.write(FULL)["end"] == {}, "an end of which nothing is said is an end"
    assert SCHEMA.write(FULL)["some"] == (), "none of them is not the same as all of them"


def test_what_is_written_is_read() -> None:
    written = SCHEMA.write(FULL)
    assert written["colour"] == "green"
    as_json = {**written, "some": [], "texts": ["t"]}
    assert SCHEMA.read(as_json) == FULL


def test_unknown_fields_are_ignored() -> None:
    assert SCHEMA.read({"name": "a", "of_a_newer_version": 1}) == NOTHING


def test_given_fields_are_taken_as_they_are() -> None:
    schema = MessageSchema(Inner, "m", given=("text",))
    assert schema.read({"text": b"bytes"}) == (0, b"bytes")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": None}, "m.name: must be 1 to 63 letters"),
        ({"line": 1}, "m.line: must be a string, not a number"),
        ({"flag": 1}, "m.flag: must be a boolean, not a number"),
        ({"count": -1}, "m.count: must be a whole number of at least 0"),
        ({"count": None}, "m.count: must be a whole number of at least 0"),
        ({"count": True}, "m.count: must be a whole number of at least 0"),
        ({"least": 0}, "m.least: must be a whole number of at least 1"),
        ({"maybe": 0}, "m.maybe: must be a whole number of at least 1"),
        ({"some": [1]}, "m.some[0]: must be a string"),
        ({"texts": "t"}, "m.texts: must be a list"),
        ({"text_map": {"a": 1}}, "m.text_map['a']: must be a string"),
        ({"counts": {"c": -1}}, "m.counts.c: must be a whole number of at least 0"),
        ({"inner": []}, "m.inner: must be an object"),
        ({"inner": {"code": 2**31}}, "m.inner.code: must be a whole number of 32 bits"),
        ({"inners": [{}, 1]}, "m.inners[1]: must be an object"),
        ({"inners": [{"text": 1}]}, "m.inners.text: must be a string"),
        ({"colour": 1}, "m.colour: must be a string"),
        ({"end": {"code": "0"}}, "m.end.code: must be a whole number of 32 bits"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Located) as caught:
        SCHEMA.read({"name": "a", **fields})
    assert message in str(caught.value)


def test_a_required_field_that_is_absent_is_named() -> None:
    with pytest.raises(Located, match=r"m\.name: must be 1 to 63 letters"):
        SCHEMA.read({})


def test_a_type_without_a_reader_is_refused_at_once() -> None:
    class Strange(NamedTuple):
        field: float

    with pytest.raises(TypeError, match=r"m\.field: no reader for <class 'float'>"):
        MessageSchema(Strange, "m")
