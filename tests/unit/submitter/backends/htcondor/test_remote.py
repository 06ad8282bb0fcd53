"""A schedd elsewhere: who is asked, what is asked for, and what becomes of what jobs leave.

Its programs are stand-ins that note how they were started: what they answer could not be had at a
chosen moment from real ones, which tests/sites/htcondor has.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from submitter.backends import command_backend
from submitter.backends.base import JobRef
from submitter.backends.htcondor import spooling
from submitter.backends.htcondor.backend import HTCondorBackend
from submitter.backends.htcondor.states import COMPLETED, HELD, IDLE, REMOVED, RUNNING
from submitter.common.errors import CommandFailed
from submitter.config.settings import Pool
from submitter.store.journal import Journal
from templates.job.status import ENDED, QUEUED, STARTED

WHERE = ["-name", "ce", "-pool", "c:9618"]
PROGRAM = """\
#!/bin/bash
printf '%s\\n' "${{0##*/}} $*" >>{folder}/started
[ ! -e {folder}/fails-${{0##*/}} ] || {{ cat {folder}/fails-${{0##*/}} >&2; exit 1; }}
cat {folder}/${{0##*/}}.says 2>/dev/null; true
"""


class Element:
    """A pool of one, and what its programs are to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = {}
        names = "submit q history rm vacate_job status transfer_data qedit"
        for name in (f"condor_{word}" for word in names.split()):
            (folder / name).write_text(PROGRAM.format(folder=folder))
            (folder / name).chmod(0o755)
            programs[name] = str(folder / name)
        remote = {"schedd": "ce", "collector": "c:9618"}
        options = {"programs": programs, "shared": False, "remote": remote}
        pool = Pool(name="p", directory=str(folder / "pool"), options=options)
        Journal(pool.directory).prepare()
        self.condor = HTCondorBackend(pool)
        for number in (1, 2, 3):
            place = Path(self.ref(number).directory)
            place.mkdir()
            (place / "request.json").touch()

    def ref(self, number: int = 1) -> JobRef:
        name = f"job-{number}"
        return JobRef(name, f"{number}.0", str(self.folder / "pool" / "jobs" / name))

    def says(self, program: str, *ads: dict[str, Any]) -> None:
        (self.folder / f"{program}.says").write_text(json.dumps(ads) if ads else "")

    def started(self) -> list[str]:
        """The programs since this was last asked."""
        file = self.folder / "started"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    def sight(self) -> Any:
        return self.condor.poll([self.ref()]).get("job-1")


def ad(status: int, number: int = 1, **more: Any) -> dict[str, Any]:
    own = {"ClusterId": number, "ProcId": 0, "InterlinkJob": f"job-{number}"}
    return {**own, "JobStatus": status, "NumShadowStarts": 1, **more}


@pytest.fixture
def element(tmp_path: Path) -> Element:
    return Element(tmp_path)


def test_who_is_asked(element: Element) -> None:
    element.says("condor_q", ad(RUNNING, RemoteHost="n1"))
    element.sight()
    element.condor.cancel([JobRef("job-1", "1.0", "")], kill=True)
    element.condor.capacity()
    for line in element.started():
        program, *words = line.split()
        assert words[: len(WHERE)] == WHERE or (program, words[:2]) == ("condor_status", WHERE[2:])


def test_what_runs_is_fetched(element: Element) -> None:
    element.says("condor_q", ad(RUNNING, RemoteHost="n1"))
    assert element.sight().phase == STARTED
    asked, fetched = element.started()
    assert asked.startswith("condor_q")
    assert fetched.startswith("condor_transfer_data")
    assert "member(ClusterId, {1})" in fetched


def test_what_waits_is_not(element: Element) -> None:
    element.says("condor_q", ad(IDLE, NumShadowStarts=0))
    assert element.sight().phase == QUEUED
    assert len(element.started()) == 1


@pytest.mark.parametrize(
    "over", [ad(COMPLETED, ExitCode=3, CompletionDate=5), ad(REMOVED, EnteredCurrentStatus=5)]
)
def test_an_end_is_told_once_its_last_words_are_here(
    element: Element, over: dict[str, Any]
) -> None:
    element.says("condor_q", ad(RUNNING, RemoteHost="n1"))
    element.sight()
    element.says("condor_q", over)
    fails = element.folder / "fails-condor_transfer_data"
    fails.touch()
    assert element.sight().phase == STARTED
    fails.unlink()
    assert element.sight().phase == ENDED
    element.started()
    assert element.sight().phase == ENDED
    assert len(element.started()) == 1  # what is here is not fetched again


def test_what_an_evicted_job_has_left_is_fetched(element: Element) -> None:
    element.says("condor_q", ad(IDLE, NumJobStarts=1, EnteredCurrentStatus=5))
    seen = element.sight()
    assert (seen.phase, seen.reason) == (ENDED, "Evicted")
    assert [line.split()[0] for line in element.started()] == [
        "condor_q", "condor_qedit", "condor_transfer_data",
    ]  # fmt: skip


def test_last_words_are_not_waited_for_for_ever(
    element: Element, monkeypatch: pytest.MonkeyPatch
) -> None:
    element.says("condor_q", ad(COMPLETED, ExitCode=3, CompletionDate=5))
    (element.folder / "fails-condor_qedit").touch()
    assert element.sight().phase == QUEUED
    monkeypatch.setattr(spooling, "FETCH_TIMEOUT_S", 0)
    assert element.sight().phase == ENDED


def test_one_is_cleaned_while_its_last_words_are_fetched(
    element: Element, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another submitter has told its end, and a thread of ours takes it out of the queue."""
    element.says("condor_q", ad(COMPLETED, ExitCode=3, CompletionDate=5))
    run = element.condor._commands.run

    def cleaning(program: str, *rest: Any) -> str:
        if program == "condor_qedit":
            element.condor.clean([element.ref()])
            raise CommandFailed(program, "Queue transaction failed")
        return run(program, *rest)

    monkeypatch.setattr(element.condor._commands, "run", cleaning)
    assert element.sight().phase == QUEUED


def test_a_removed_one_that_still_ends_runs(element: Element) -> None:
    element.says("condor_q", ad(REMOVED, RemoteHost="n1"))
    assert element.sight().phase == STARTED


def test_one_that_never_began_has_left_nothing(element: Element) -> None:
    element.says("condor_q", ad(REMOVED, NumShadowStarts=0, RemoveReason="who cares"))
    seen = element.sight()
    assert (seen.phase, seen.message) == (ENDED, "HTCondor: Removed: who cares")
    assert len(element.started()) == 1


def test_many_that_run_take_turns(element: Element, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "FETCH_BATCH", 2)
    element.says("condor_q", *(ad(RUNNING, number, RemoteHost="n") for number in (1, 2, 3)))
    refs = [element.ref(number) for number in (1, 2, 3)]
    turns = []
    for _ in range(3):
        element.condor.poll(refs)
        turns.append(element.started()[1].partition("member(")[2])
    some = ["ClusterId, {1, 2})", "ClusterId, {1, 3})", "ClusterId, {2, 3})"]
    assert turns == some


def test_a_directory_that_is_gone_is_not_made_again(element: Element) -> None:
    """HTCondor would make it again; when it is removed while files come, it goes once more."""
    element.says("condor_q", ad(RUNNING, RemoteHost="n1"))
    place = Path(element.ref().directory)
    program = element.folder / "condor_transfer_data"
    program.write_text(f"#!/bin/bash\nrm -rf {place}; mkdir {place}; touch {place}/stream\n")
    element.sight()
    assert not place.exists()
    element.started()
    element.sight()
    assert len(element.started()) == 1
    assert not place.exists()


@pytest.mark.parametrize(
    "half",
    [
        ad(HELD, HoldReasonCode=16, NumShadowStarts=0),
        ad(REMOVED, RemoveReason="Staging of job files failed", NumShadowStarts=0),
    ],
)
def test_one_of_which_files_are_missing_is_not_found(
    element: Element, half: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_backend, "RECOVERY_S", 0)
    element.says("condor_q", half)
    assert element.condor.find(["job-1"]) == {}
    lines = element.started()
    (removed,) = [line for line in lines if line.startswith("condor_rm")]
    assert "JobStatus == 5 && HoldReasonCode == 16" in removed
    assert "-reason interlink: not all of its files have arrived" in removed
    (past,) = [line for line in lines if line.startswith("condor_history")]
    assert "!regexp(" in past


def test_a_job_that_waits_for_its_files_for_ever_is_lost(element: Element) -> None:
    """condor_submit has said that it was handed over; its schedd died then."""
    half = {"HoldReasonCode": 16, "NumShadowStarts": 0}
    element.says("condor_q", ad(HELD, EnteredCurrentStatus=int(time.time()), **half))
    assert element.sight().phase == QUEUED
    assert len(element.started()) == 1
    element.says("condor_q", ad(HELD, EnteredCurrentStatus=int(time.time()) - 100, **half))
    assert element.sight().phase == QUEUED
    _, removed = element.started()
    assert removed.startswith("condor_rm")
    assert "-reason interlink: not all of its files have arrived" in removed
    assert "member(ClusterId, {1}) && JobStatus == 5 && HoldReasonCode == 16 && time() -" in removed
    element.says("condor_q")
    element.says("condor_history", ad(REMOVED, RemoveReason=spooling.INCOMPLETE))
    seen = element.sight()
    assert (seen.phase, seen.lost) == (ENDED, True)


def test_what_is_clean_leaves_the_queue_for_good(element: Element) -> None:
    element.condor.clean([JobRef("job-1", "1.0", str(element.folder))])
    first, second = element.started()
    assert "-reason interlink: the pod's job is over" in first
    assert "JobStatus == 3 && RemoteHost is undefined" in second
    assert "-forcex" in second


def test_many_that_have_left_the_queue_are_clean(element: Element) -> None:
    """condor_rm says so in words that go on with all of their numbers."""
    refs = [element.ref(number) for number in range(1, 200)]
    numbers = ", ".join(map(str, range(1, 200)))
    constraint = f'(InterlinkPool == "p" && member(ClusterId, {{{numbers}}}) && JobStatus isnt 3)'
    said = f"Couldn't find/remove all jobs matching constraint {constraint}\n"
    (element.folder / "fails-condor_rm").write_text(said)
    assert element.condor.clean(refs) == {ref.name for ref in refs}
