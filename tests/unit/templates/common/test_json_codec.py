"""JSON is read alike with and without orjson, but for the words of a complaint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from templates.common import json_codec
from templates.common.json_codec import dump_json, has_more_values, load_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES, st.booleans())
def test_what_python_writes_is_read(value: Any, ascii_only: bool) -> None:
    try:
        raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        raw = json.dumps(value).encode()
    assert load_json(raw) == json.loads(raw)


@given(VALUES)
def test_what_is_written_can_be_read_and_is_one_line(value: Any) -> None:
    for quick in (json_codec._fast_dumps, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_codec, "_fast_dumps", quick)
            raw = dump_json(value)
        assert json.loads(raw) == value
        assert b"\n" not in raw


@pytest.mark.parametrize("value", [["\ud800"], [2**70], [(1, "x")], {1: 2}, [[[0.5]]]])
def test_what_orjson_does_not_write_is_written(value: Any) -> None:
    assert load_json(dump_json(value)) == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    "raw",
    [
        b'"\\ud800"',
        b'{"a": 1, "a": 2}',
        b"1e400",
        b"-0",
        b" [1 ]\n",
        b'"\\u0000"',
        b"[" * 900 + b"]" * 900,
    ],
)
def test_odd_json_is_read_as_python_does(raw: bytes) -> None:
    assert load_json(raw) == json.loads(raw)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"nul", b"\xff", b"'a'", b"[1,]", b"01", b"\xef\xbb\xbf1", b'"\n"', b"1 2"]
)
def test_what_is_no_json_is_refused_in_the_same_words(
    raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r".") as quick:
        load_json(raw)
    monkeypatch.setattr(json_codec, "_fast_loads", None)
    with pytest.raises(ValueError, match=r".") as slow:
        load_json(raw)
    assert str(quick.value) == str(slow.value)


def test_what_is_nested_too_deep_is_refused() -> None:
    with pytest.raises((ValueError, RecursionError)):
        load_json(b"[" * 100_000)


TEXTS = st.text('"\\\\,[{ab', max_size=20)
NESTED = st.recursive(
    st.integers(0, 9) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


def count(value: Any) -> int:
    """Commas and opening brackets, as they would stand in its JSON if it had no texts."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return 0
    return 1 + max(len(value) - 1, 0) + sum(map(count, value))


@given(NESTED)
def test_values_are_counted_and_brackets_in_texts_are_not(value: Any) -> None:
    raw = json.dumps(value).encode()
    values = count(value)
    assert not has_more_values(raw, max(values, 1))
    if values > 1:
        assert has_more_values(raw, values - 1)


def test_a_text_of_brackets_is_one_value() -> None:
    assert not has_more_values(json.dumps(['[{,"\\' * 10_000]).encode(), 3)
    assert has_more_values(b"[" + b'"a",' * 10 + b'"a"]', 5)


def test_a_long_number_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time to read one grows with the square of its digits."""
    for quick in (json_codec._fast_loads, None):
        monkeypatch.setattr(json_codec, "_fast_loads", quick)
        assert load_json(b"1" * 500 if quick is None else b"[1]")
        with pytest.raises(ValueError, match="a number has 501 digits"):
            load_json(b"[%s]" % (b"1" * 501))
