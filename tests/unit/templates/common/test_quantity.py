"""Kubernetes quantities."""

from __future__ import annotations

from fractions import Fraction

import pytest

from templates.common.errors import PodRejected
from templates.common.quantity import (
    as_text,
    byte_count,
    count,
    cpu_milli,
    is_quantity,
    parse,
    quantities_at,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("+1", 1),
        ("-1", -1),
        ("007", 7),
        ("1.5", Fraction(3, 2)),
        ("1.", 1),
        (".5", Fraction(1, 2)),
        ("5n", Fraction(5, 10**9)),
        ("5u", Fraction(5, 10**6)),
        ("500m", Fraction(1, 2)),
        ("1k", 1000),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Ki", 2**10),
        ("1Mi", 2**20),
        ("1Gi", 2**30),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1.5Gi", 3 * 2**29),
        ("-1.5Gi", -3 * 2**29),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1.5e3", 1500),
        ("1e+3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("0.1", Fraction(1, 10)),
    ],
)
def test_a_quantity_is_read_exactly(text: str, value: Fraction) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "1 Gi",
        " 1",
        "1\n",
        "1gi",
        "1K",
        "1ki",
        "1mi",
        "1GiB",
        "1e",
        "1e3Ki",
        "1e1.5",
        ".",
        "+",
        "--1",
        "1,5",
        "0x10",
        "1_000",
        "²",
        "١",
        "1e31",
        "1e999999999",
        "inf",
        "nan",
    ],
)
def test_anything_else_is_not_a_quantity(text: str) -> None:
    for function in (parse, cpu_milli, byte_count, count):
        with pytest.raises(PodRejected) as caught:
            function(text, "limits.cpu")
        assert str(caught.value) == f"limits.cpu: not a quantity: {text.strip()}"
    assert not is_quantity(text)


def test_an_empty_text_is_named_in_words() -> None:
    with pytest.raises(PodRejected) as caught:
        parse("", "x")
    assert str(caught.value) == "x: not a quantity: an empty text"


def test_a_long_text_is_cut_in_the_complaint() -> None:
    with pytest.raises(PodRejected) as caught:
        byte_count("9" * 10_000, "x")
    assert str(caught.value) == "x: not a quantity: " + "9" * 64


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("1", 1000),
        ("100m", 100),
        ("0.5", 500),
        ("1.0001", 1001),
        ("1u", 1),
        ("0", 0),
        ("2k", 2 * 10**6),
    ],
)
def test_cpus_are_rounded_up_to_thousandths(text: str, milli: int) -> None:
    assert cpu_milli(text) == milli


@pytest.mark.parametrize(
    ("text", "number"), [("1Gi", 2**30), ("1500m", 2), ("1n", 1), ("0.1Ki", 103), ("1e3", 1000)]
)
def test_bytes_and_pieces_are_rounded_up_to_whole_ones(text: str, number: int) -> None:
    assert byte_count(text) == number
    assert count(text) == number


@pytest.mark.parametrize(("text", "expected"), [("1", True), ("0", True), ("-1", False)])
def test_a_pod_may_not_ask_less_than_nothing(text: str, expected: bool) -> None:
    assert is_quantity(text) is expected


@pytest.mark.parametrize(
    ("value", "text"), [(2, "2"), (0.5, "0.5"), ("1Gi", "1Gi"), (None, ""), (1e21, "1e+21")]
)
def test_numbers_of_yaml_are_quantities(value: object, text: str) -> None:
    assert as_text(value, "x") == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "x: must be a quantity, not a boolean"),
        ([], "x: must be a quantity, not a list"),
        ({}, "x: must be a quantity, not an object"),
    ],
)
def test_other_values_are_no_quantities(value: object, message: str) -> None:
    with pytest.raises(PodRejected) as caught:
        as_text(value, "x")
    assert str(caught.value) == message


def test_an_object_of_quantities_keeps_what_was_written() -> None:
    holder = {"limits": {"cpu": "500m", "memory": "1.5Gi"}}
    assert quantities_at(holder, "limits", "x") == holder["limits"]
    assert quantities_at({"limits": {"cpu": 2, "memory": "1Gi"}}, "limits", "x") == {
        "cpu": "2",
        "memory": "1Gi",
    }
    assert quantities_at({}, "limits", "x") == {}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"cpu": "-1"}, "x.limits['cpu']: must not be negative"),
        ({"cpu": -1}, "x.limits['cpu']: must not be negative"),
        ({"cpu": "much"}, "x.limits['cpu']: not a quantity: much"),
        ({"cpu": None}, "x.limits['cpu']: not a quantity: an empty text"),
        ({"cpu": True}, "x.limits['cpu']: must be a quantity, not a boolean"),
        ([], "x.limits: must be an object, not a list"),
    ],
)
def test_a_bad_quantity_is_named_with_its_resource(limits: object, message: str) -> None:
    with pytest.raises(PodRejected) as caught:
        quantities_at({"limits": limits}, "limits", "x")
    assert str(caught.value) == message
