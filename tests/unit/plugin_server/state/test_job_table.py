"""The table of states: what replaces what, and who may speak of whom."""

from __future__ import annotations

from typing import Any

import pytest

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
