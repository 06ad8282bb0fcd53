"""The table of states: what replaces what, and who may speak of whom."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from plugin_server.state import job_table as module
from plugin_server.state.job_table import JobTable
from templates.job.status import JobStatus, Version
from tests.unit.plugin_server.pod_builders import pod, status

RAW = pod()
UID = RAW["metadata"]["uid"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def job(phase: str = "started", **changes: Any) -> JobStatus:
    return status(RAW, phase, **changes)


def phase(table: JobTable, pool: str = "") -> str:
    entry = table.find(UID, pool)
    return entry.status.phase if entry is not None else "unknown"


@pytest.mark.parametrize(
    ("known", "said", "phase_after"),
    [
        (job("queued"), job("started"), "started"),
        (job("started"), job("queued"), "started"),
        (job("started"), job("queued", version=Version(7, 1, 0)), "queued"),
        (job("ended"), job("started", version=Version(9, 2, 9)), "ended"),
        (job("ended"), job("ended", version=Version(9, 3, 9)), "ended"),
    ],
)
def test_the_later_version_counts_and_an_end_is_final(
    known: JobStatus, said: JobStatus, phase_after: str
) -> None:
    table = JobTable()
    assert table.put("a", known)
    table.put("a", said)
    assert phase(table) == phase_after


def test_new_words_for_the_same_version_count() -> None:
    table = JobTable()
    table.put("a", job("queued", message="Priority"))
    assert table.put("a", job("queued", message="Resources"))
    assert not table.put("a", job("queued", message="Resources"))


def test_a_pool_speaks_of_its_own_jobs_only() -> None:
    table = JobTable()
    table.put("a", job("started"))
    table.put("b", job("ended"))
    assert (phase(table, "a"), phase(table, "b")) == ("started", "ended")
    table.remember_pool(UID, "a")
    assert phase(table) == "started"
    table.remove("b", [UID])
    assert phase(table, "a") == "started"


def test_a_complete_list_removes_what_it_does_not_hold_unless_that_is_newer() -> None:
    clock = Clock()
    table = JobTable(clock=clock)
    table.put("a", job())
    clock.now += 5
    other = pod()
    table.add_accepted("a", status(other))
    assert table.keep_only("a", set(), clock.now - 1) == 1
    assert phase(table) == "unknown"
    assert table.count("a") == 1


def test_what_is_gone_before_its_create_has_returned_does_not_come_again() -> None:
    table = JobTable()
    table.remove("a", [UID])
    table.add_accepted("a", job("queued"))
    assert phase(table) == "unknown"
    table.add_accepted("b", job("queued"))
    assert phase(table) == "queued"  # a pool speaks of its own jobs only
    table.remove("b", [UID])
    assert table.put("a", job("started"))  # the site itself has it again
    table.remove("b", [UID])
    table.add_accepted("a", job("ended"))
    assert phase(table) == "ended"


def test_the_jobs_of_one_cluster_are_those_that_say_so() -> None:
    table = JobTable()
    mine, others, nobodys = (status(pod(), origin=o) for o in ("x", "y", ""))
    for one in (mine, others, nobodys):
        table.put("a", one)
    assert table.of_origin("x") == [("a", mine)]


def test_it_counts_by_pool_and_phase() -> None:
    table = JobTable()
    table.put("a", job())
    table.put("a", status(pod(), "queued"))
    table.put("b", status(pod(), "ended", exit_code=3))
    table.put("b", status(pod(), "ended"))
    assert table.count_by_phase() == {
        "a": {"accepted": 0, "queued": 1, "started": 1, "ended": 0, "failed": 0},
        "b": {"accepted": 0, "queued": 0, "started": 0, "ended": 2, "failed": 1},
    }


# --- what a site invents --------------------------------------------------------------------------


def test_what_a_pool_invents_fills_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPARE_BYTES", 1_000_000)
    for text in ("", "x" * 8000, "\U0001f600" * 8000):
        table = JobTable()
        tracemalloc.start()
        for _ in range(3000):
            table.put("a", status(pod(), message=str([text])))
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert grown < 2_500_000
        assert 0 < table.count("a") < 2000


def test_jobs_that_somebody_asks_for_have_room_whatever_else_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SPARE_BYTES", 100_000)
    table = JobTable()
    asked, sent, heard = pod(), pod(), pod()
    table.put("a", status(heard))
    table.remember_pool(heard["metadata"]["uid"], "a")
    for _ in range(1000):
        table.put("a", status(pod()))
    full = table.count("a")
    table.remember_pool(asked["metadata"]["uid"], "a")
    assert table.put("a", status(asked))
    table.add_accepted("a", status(sent))
    for raw in (asked, sent, heard):
        assert table.put("a", status(raw, "ended", message="x" * 4000))
        assert table.find(raw["metadata"]["uid"], "a") is not None
    assert 0 < table.count("a") < full + 2


def test_a_pool_whose_own_jobs_are_full_of_text_keeps_what_it_said_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SPARE_BYTES", 100_000)
    table = JobTable()
    pods = [pod() for _ in range(100)]
    for raw in pods:
        table.add_accepted("a", status(raw, "queued"))
    for raw in pods:
        table.put("a", status(raw, "started", message="x" * 8000))
    phases = [table.find(raw["metadata"]["uid"], "a").status.phase for raw in pods]  # type: ignore[union-attr]
    assert {"queued", "started"} == set(phases)
    for raw in pods:  # with less to say there is room again
        assert table.put("a", status(raw, "ended"))


def test_one_pool_takes_no_room_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPARE_BYTES", 10_000)
    monkeypatch.setattr(module, "MAX_REMOVED", 10)
    table = JobTable()
    table.remove("b", [UID])
    for _ in range(100):
        other = pod()
        table.put("a", status(other))
        table.remove("a", [other["metadata"]["uid"], UID])
    table.add_accepted("b", job())
    assert table.find(UID, "b") is None  # still known to be gone
    assert table.put("b", job())


def test_a_pool_that_has_a_pod_no_more_does_not_leave_it_to_another() -> None:
    table = JobTable()
    table.add_accepted("a", job())
    table.put("b", job("ended"))
    table.remove("b", [UID])
    table.put("b", job("ended"))
    table.remove("a", [UID])
    assert phase(table) == "unknown"
    assert table.pool_of(UID) == "a"


def test_of_several_pools_that_claim_a_pod_none_is_believed() -> None:
    table = JobTable()
    table.put("a", job())
    assert phase(table) == "started"
    table.put("b", job("ended"))
    assert phase(table) == "unknown"
    assert table.pool_of(UID) == ""
    assert phase(JobTable("a")) == "unknown"


def test_what_a_pool_says_of_pods_with_another_home_is_not_of_the_cluster() -> None:
    table = JobTable()
    mine = job(origin="x")
    table.put("b", mine)
    assert table.of_origin("x") == [("b", mine)]
    table.add_accepted("a", mine)
    assert table.of_origin("x") == [("a", mine)]
