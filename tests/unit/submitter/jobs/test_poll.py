"""What is believed of a batch system's words, and of its silence."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from submitter.backends.base import Observation
from submitter.common.errors import BackendUnavailable
from submitter.jobs.context import PoolContext
from submitter.jobs.finish import Ending
from submitter.jobs.lifecycle import JobLifecycle
from submitter.jobs.poll import Polling
from submitter.jobs.scanner import load
from submitter.jobs.submit import Submission
from submitter.jobs.table import TrackedJob
from templates.job.records import parse_lines
from templates.job.status import ENDED, QUEUED, STARTED
from templates.protocol.messages import Delete
from tests.unit.submitter.fakes import moody, site_of
from tests.unit.submitter.rig import PATIENCE_S, job_of, placed


@pytest.fixture
def site(tmp_path: Path) -> PoolContext:
    return site_of(tmp_path / "pool")


@pytest.fixture
def entry(site: PoolContext) -> TrackedJob:
    """A job that was submitted."""
    job = job_of()
    placed(site.journal, job)
    site.journal.write(f"{site.journal.of(job.name)}/native", b"17")
    return known(site, job.name)


def known(site: PoolContext, name: str) -> TrackedJob:
    found = load(site.journal, name)
    assert found is not None
    entry = site.table.add(found)
    assert entry is not None
    return entry


def record(entry: TrackedJob, stream: str, number: int, words: str) -> bytes:
    return (
        f"interlink1 job={entry.name} run=1795015701725 stream={stream} n={number}"
        f" at=1795015702039 {words} ;\n"
    ).encode()


def write_records(site: PoolContext, entry: TrackedJob, *lines: bytes) -> None:
    Path(site.journal.of(entry.name), "records").write_bytes(b"".join(lines))


def test_states_are_taken_over(site: PoolContext, entry: TrackedJob) -> None:
    moody(site).observations = {entry.name: Observation(QUEUED, "Priority", "others come first")}
    asyncio.run(Polling(site).step())
    status = entry.status()
    assert (status.phase, status.reason, status.message) == (
        QUEUED,
        "Priority",
        "others come first",
    )
    moody(site).observations = {entry.name: Observation(STARTED)}
    asyncio.run(Polling(site).step())
    assert (entry.status().phase, entry.status().message) == (STARTED, "")


def test_no_answer_changes_nothing(site: PoolContext, entry: TrackedJob) -> None:
    moody(site).observations = {entry.name: Observation(STARTED)}
    polling = Polling(site)
    asyncio.run(polling.step())
    before = entry.dump()
    moody(site).trouble = BackendUnavailable("down")
    moody(site).lost_after_s = 0.001
    for _ in range(5):
        with pytest.raises(BackendUnavailable):
            asyncio.run(polling.step())
    assert entry.dump() == before
    assert entry.missing_s == 0


def test_a_missing_job_is_lost_only_after_a_while_of_answers(
    site: PoolContext, entry: TrackedJob
) -> None:
    moody(site).lost_after_s = 0.2
    polling = Polling(site)

    async def ask() -> int:
        asked = 0
        while not entry.has_ended:
            await polling.step()
            asked += 1
            await asyncio.sleep(0.05)
        return asked

    assert asyncio.run(ask()) >= 3
    status = entry.status()
    assert (status.phase, status.exit_code) == (ENDED, 1)
    assert "vanished from the batch system at 20" in status.message
    end = status.containers[0].state.end
    assert end is not None
    assert end.exit_code == 1


def test_a_job_that_was_lost_before_it_began_waits_again(
    site: PoolContext, entry: TrackedJob
) -> None:
    moody(site).observations = {entry.name: Observation(ENDED, message="NODE_FAIL", lost=True)}
    polling = Polling(site, lambda name, native: "")
    asyncio.run(polling.step())
    assert polling.to_resubmit == [entry]
    status = entry.status()
    assert (status.phase, status.native) == (QUEUED, "")
    assert "it is submitted again" in status.message


def test_a_job_that_another_submitter_has_submitted_again_is_not_lost_once_it_has_begun(
    site: PoolContext, entry: TrackedJob
) -> None:
    write_records(site, entry, record(entry, "job", 1, "state=started node=n1"))
    moody(site).lost_after_s = 0.001
    polling = Polling(site, lambda name, native: "18")

    async def ask() -> None:
        for _ in range(3):
            await polling.step()
            await asyncio.sleep(0.01)

    asyncio.run(ask())
    assert polling.to_resubmit == []
    assert (entry.native, entry.status().phase) == ("18", STARTED)


def test_what_a_job_has_brought_upon_itself_is_its_end(
    site: PoolContext, entry: TrackedJob
) -> None:
    moody(site).observations = {entry.name: Observation(ENDED, message="TIMEOUT")}
    asyncio.run(Polling(site, lambda name, native: "").step())
    assert entry.status().phase == ENDED


def test_a_job_that_shows_up_again_was_never_lost(site: PoolContext, entry: TrackedJob) -> None:
    polling = Polling(site)
    asyncio.run(polling.step())
    asyncio.run(polling.step())
    assert entry.missing_s > 0
    moody(site).observations = {entry.name: Observation(STARTED)}
    asyncio.run(polling.step())
    assert entry.missing_s == 0


def test_late_records_count_more_than_the_batch_system(
    site: PoolContext, entry: TrackedJob
) -> None:
    moody(site).observations = {entry.name: Observation(ENDED, message="TIMEOUT", exit_code=1)}
    write_records(
        site,
        entry,
        record(entry, "job", 1, "state=started node=n1"),
        record(entry, "c.main", 1, "kind=main state=terminated exit=3 reason=Error restarts=0"),
        record(entry, "job", 2, "state=finished exit=3 message="),
    )
    asyncio.run(Polling(site).step())
    assert (entry.status().phase, entry.status().exit_code) == (ENDED, 3)


def test_an_end_without_a_record_is_a_failure_even_with_exit_code_0(
    site: PoolContext, entry: TrackedJob
) -> None:
    moody(site).observations = {entry.name: Observation(ENDED, message="COMPLETED", exit_code=0)}
    asyncio.run(Polling(site).step())
    status = entry.status()
    assert (status.phase, status.exit_code) == (ENDED, 1)
    assert "COMPLETED" in status.message


def test_time_is_given_for_the_last_records(site: PoolContext, entry: TrackedJob) -> None:
    moody(site).settle_s = 60.0
    moody(site).observations = {entry.name: Observation(ENDED, message="COMPLETED")}
    polling = Polling(site)
    asyncio.run(polling.step())
    assert not entry.has_ended
    assert polling.pause() == site.pool.timing.poll_s
    moody(site).urgent_s = 1.0
    assert polling.pause() == 1.0


def test_a_requeued_job_waits_again(site: PoolContext, entry: TrackedJob) -> None:
    write_records(site, entry, record(entry, "job", 1, "state=started node=n1"))
    entry.add_records(load(site.journal, entry.name).records)  # type: ignore[union-attr]
    assert entry.status().phase == STARTED
    moody(site).observations = {entry.name: Observation(QUEUED, requeued=True)}
    asyncio.run(Polling(site).step())
    assert entry.status().phase == QUEUED


def test_an_end_is_told_the_same_way_after_a_restart(site: PoolContext, entry: TrackedJob) -> None:
    moody(site).observations = {entry.name: Observation(ENDED, message="NODE_FAIL", exit_code=9)}
    asyncio.run(Polling(site).step())
    asyncio.run(Ending(site).step())
    assert entry.final
    assert entry.cleaned
    assert not Path(site.journal.of(entry.name), "secret").exists()
    other = site_of(Path(site.journal.directory))
    again = known(other, entry.name)
    assert again.final
    assert again.dump() == entry.dump()
    assert again.native == "17"


def test_an_end_that_another_submitter_has_written_down_is_not_told_otherwise(
    site: PoolContext, entry: TrackedJob
) -> None:
    other = known(site_of(Path(site.journal.directory)), entry.name)
    other.update(other.view._replace(phase=ENDED, message="its node burned", exit_code=9))
    site.journal.write_final(entry.name, other.dump())
    moody(site).observations = {entry.name: Observation(ENDED, message="COMPLETED")}
    asyncio.run(Polling(site).step())
    assert entry.dump() == other.dump()
    asyncio.run(Ending(site).step())
    assert entry.cleaned


def test_jobs_are_known_from_the_start_while_the_batch_system_is_away(
    site: PoolContext, entry: TrackedJob
) -> None:
    moody(site).observations = {entry.name: Observation(ENDED, message="NODE_FAIL", exit_code=9)}
    asyncio.run(Polling(site).step())
    moody(site).trouble = BackendUnavailable("down")
    with pytest.raises(BackendUnavailable):
        asyncio.run(Ending(site).step())
    other = site_of(Path(site.journal.directory))
    moody(other).trouble = BackendUnavailable("down")

    async def begin() -> None:
        lifecycle = JobLifecycle(other)
        await lifecycle.start()
        again = other.table.get(entry.name)
        assert again is not None
        assert (again.final, again.cleaned) == (True, False)
        moody(other).trouble = None
        while not again.cleaned:
            await asyncio.sleep(0.01)
        await lifecycle.stop()

    asyncio.run(asyncio.wait_for(begin(), PATIENCE_S))


@pytest.mark.parametrize("turns", range(6))
def test_who_is_awoken_just_then_stops_too(
    site: PoolContext, entry: TrackedJob, turns: int
) -> None:
    async def stop() -> None:
        lifecycle = JobLifecycle(site)
        await lifecycle.start()
        wakes = lifecycle._loops._wakes.values()
        while not all(wake._waiters for wake in wakes):  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        for wake in wakes:
            wake.set()
        for _ in range(turns):  # of the loop, until it is cancelled
            await asyncio.sleep(0)
        await lifecycle.stop()

    asyncio.run(asyncio.wait_for(stop(), PATIENCE_S))


FINISHED = "state=finished exit=0 message="


def waiting_one(site: PoolContext) -> TrackedJob:
    """A job that stands in our queue, as far as this submitter knows."""
    job = job_of()
    placed(site.journal, job)
    entry = known(site, job.name)
    entry.update(entry.view._replace(phase=QUEUED, reason="Queued", message="waits for its turn"))
    return entry


def test_the_end_of_a_job_that_another_submitter_has_handed_over(site: PoolContext) -> None:
    entry = waiting_one(site)
    site.journal.write(f"{site.journal.of(entry.name)}/native", b"17")
    write_records(site, entry, record(entry, "job", 2, FINISHED))
    entry.add_records(load(site.journal, entry.name).records)  # type: ignore[union-attr]
    asyncio.run(Ending(site, Submission(site.journal, site.backend).resolve_native_id).step())
    again = known(site_of(Path(site.journal.directory)), entry.name)
    assert (again.final, again.native) == (True, "17")
    told = json.loads(again.dump())
    assert (told["phase"], told.get("message", "")) == (ENDED, "")


def test_an_end_is_not_written_down_before_it_is_known_what_it_is_the_end_of(
    site: PoolContext,
) -> None:
    """The other submitter was killed before it had noted the job's identity."""
    entry = waiting_one(site)
    (Path(site.journal.of(entry.name)) / "submitting").touch()
    entry.add_records(parse_lines(record(entry, "job", 2, FINISHED)))
    moody(site).taken.append(entry.name)
    moody(site).trouble = BackendUnavailable("down")
    ending = Ending(site, Submission(site.journal, site.backend).resolve_native_id)
    asyncio.run(ending.step())
    assert (entry.final, ending.has_pending) == (False, True)
    moody(site).trouble = None
    asyncio.run(ending.step())
    assert (entry.final, entry.cleaned, ending.has_pending) == (True, True, False)
    assert known(site_of(Path(site.journal.directory)), entry.name).native == "found"


def test_a_deleted_job_that_ends_without_a_word_was_deleted(
    site: PoolContext, entry: TrackedJob
) -> None:
    site.journal.bury([Delete(entry.name, None)])
    tombstone = site.journal.tombstone(entry.name)
    assert tombstone is not None
    site.table.mark_deleted(entry, tombstone)
    moody(site).observations = {entry.name: Observation(ENDED, exit_code=1)}
    asyncio.run(Polling(site).step())
    assert (entry.status().exit_code, entry.status().message) == (143, "the pod was deleted")
