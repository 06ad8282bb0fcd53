"""The frame of the benchmarks: bars of both directions, names, the file it writes."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from tests.bench import __main__ as bench
from tests.bench.create_request import body
from tests.bench.rows import Row

FAST = Row("fast", 9000, "pods/s", "hello", 3000, ">=", 2.5)
SLOW = Row("slow", 1.5, "s", "bare", 1.0, "<=", 1.3)


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "BENCHMARKS", {row.name: "for the tests" for row in (FAST, SLOW)})
    for row in (FAST, SLOW):
        module = types.ModuleType(f"tests.bench.{row.name}")
        module.run = lambda row=row: [row]  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_bar_holds_in_its_own_direction() -> None:
    assert FAST.holds
    assert not SLOW.holds
    assert SLOW._replace(ours=1.3).holds
    assert not FAST._replace(ours=7000).holds


def test_the_exit_code_says_whether_all_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["fast"]) == 0
    assert bench.main([]) == 1
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert last == ["slow", "1.5", "s", "bare", "1", "s", "1.50", "<=", "1.3", "NO"]


def test_the_rows_are_written_as_json(tmp_path: Path) -> None:
    bench.main(["fast", "--json", str(tmp_path / "rows.json")])
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert list(row) == ["name", "ours", "unit", "against", "theirs", "ratio", "bar", "holds"]
    assert (row["ratio"], row["bar"], row["holds"]) == (3.0, ">= 2.5", True)


def test_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["fst"]) == 2
    assert capsys.readouterr().err == 'bench: no benchmark is called "fst": fast slow\n'


def test_the_request_to_translate_is_as_large_as_a_real_one() -> None:
    assert 2500 <= len(body()) <= 5000
