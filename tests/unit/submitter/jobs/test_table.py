"""The table of a pool's jobs: what of it is published, and when."""

from __future__ import annotations

import json

from submitter.jobs.table import StoredJob, Table
from tests.unit.submitter.rig import job_of


def found() -> StoredJob:
    job = job_of()
    return StoredJob(job.name, job._replace(script="", files=()), 1)


def test_what_is_new_is_told_once() -> None:
    table, one = Table(), found()
    assert table.add(one) is not None
    assert table.add(one) is None
    told, gone = table.take_changes()
    assert [json.loads(status)["job"] for status in told] == [one.name]
    assert gone == []
    assert table.take_changes() == ([], [])


def test_a_job_that_is_dropped_has_its_last_word() -> None:
    table, one = Table(), found()
    table.add(one)
    table.drop(one.name)
    told, gone = table.take_changes()
    assert [json.loads(status)["job"] for status in told] == [one.name]
    assert gone == [one.name]


def test_who_still_works_on_a_job_that_was_dropped_harms_nobody() -> None:
    """A look at the disk takes its time, and the job's directory may go meanwhile."""
    table, one, other = Table(), found(), found()
    entry = table.add(one)
    assert entry is not None
    table.add(other)
    table.drop(one.name)
    table.take_changes()
    table.mark_changed(entry)
    assert table.take_changes() == ([], [])
    again = table.add(one)
    table.take_changes()
    table.mark_changed(entry)  # that name belongs to another entry now
    assert table.take_changes() == ([], [])
    assert again is not None
    table.mark_changed(again)
    assert len(table.take_changes()[0]) == 1
