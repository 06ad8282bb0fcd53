"""A job's whole way: created, run, reported, its log read, deleted."""

from __future__ import annotations

from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, eventually, job_of


def test_a_job_from_its_creation_to_its_deletion(start: Start, centre: Centre) -> None:
    submitter = start()
    job = job_of("echo hello; exit 3")
    assert centre.create(job)["state"] == "journaled"
    assert centre.create(job)["state"] == "known"
    ended = centre.ended(job.name)
    assert ended.exit_code == 3
    (container,) = ended.containers
    assert container.state.end is not None
    assert container.state.end.exit_code == 3
    assert centre.logs(job.name) == b"hello\n"
    eventually(lambda: centre.heard.get(job.name, [None])[-1] == ended)
    directory = submitter.directory / "jobs" / job.name
    eventually(lambda: not (directory / "secret").exists())
    assert centre.delete(job.name)["state"] == "cancelling"
    centre.until_gone(job.name)
    assert not directory.exists()
    assert centre.delete(job.name)["state"] == "gone"
    assert centre.create(job)["refused"]["code"] == "deleted"
    assert submitter.stop() == 0
