"""Logs as the plugin asks for them, of jobs that run, have ended, or never began."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

from templates.job.status import QUEUED
from templates.protocol.messages import LogEnd, Refusal
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, eventually, job_of

TIME = re.compile(rb"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.000000000Z ", re.MULTILINE)


def test_what_kubectl_can_ask_for(start: Start, centre: Centre) -> None:
    start()
    job = job_of("for i in 1 2 3 4 5; do echo line $i; done")
    centre.create(job)
    centre.ended(job.name)
    whole = b"".join(b"line %d\n" % number for number in range(1, 6))
    assert centre.logs(job.name) == whole
    assert centre.logs(job.name, tail=2) == b"line 4\nline 5\n"
    assert centre.logs(job.name, tail=0) == b""
    assert centre.logs(job.name, window_bytes=3) == whole
    assert centre.logs(job.name, follow=True) == whole
    stamped = centre.logs(job.name, timestamps=True)
    assert TIME.sub(b"", stamped) == whole
    assert len(TIME.findall(stamped)) == 5
    assert centre.logs(job.name, timestamps=True, window_bytes=1) == stamped
    assert centre.logs(job.name, since_ms=int(time.time() * 1000) + 3_600_000) == b""
    assert centre.logs(job.name, since_ms=int(time.time() * 1000) - 3_600_000) == whole


def test_what_there_is_no_log_of(start: Start, centre: Centre) -> None:
    start()
    job = job_of("sleep 1000")
    for container, options in (("main", {}), ("other", {}), ("main", {"previous": True})):
        _, end = centre.window(job.name, container, **options)
        assert isinstance(end, Refusal)
        assert end.code == "unknown"
        if container == "main" and not options:
            centre.create(job)
            centre.until(job.name, lambda s: s.containers[0].state.state == "running")
    _, end = centre.window(job.name, cursor="nonsense")
    assert isinstance(end, Refusal)
    assert end.code == "malformed"


def test_a_follower_hears_each_line_and_the_end(
    start: Start, centre: Centre, tmp_path: Path
) -> None:
    start()
    job = job_of(f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo two")
    centre.create(job)
    followed = []
    follower = threading.Thread(
        target=lambda: followed.append(centre.logs(job.name, follow=True, wait_s=1))
    )
    follower.start()
    centre.until(job.name, lambda s: s.containers[0].state.state == "running")
    data, end = centre.window(job.name, follow=True)
    assert data == b"one\n"
    assert isinstance(end, LogEnd)
    data, again = centre.window(job.name, follow=True, wait_s=1, cursor=end.cursor)
    assert (data, again.over) == (b"", False)
    assert follower.is_alive()
    (tmp_path / "go").touch()
    follower.join(30)
    assert followed == [b"one\ntwo\n"]


def test_a_follower_of_the_last_lines_gets_only_those(
    start: Start, centre: Centre, tmp_path: Path
) -> None:
    start()
    job = job_of(f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo two")
    centre.create(job)
    centre.until(job.name, lambda s: s.containers[0].state.state == "running")
    threading.Timer(1, (tmp_path / "go").touch).start()
    assert centre.logs(job.name, follow=True, tail=0, wait_s=3) == b"two\n"


def test_a_container_that_has_not_begun(start: Start, centre: Centre) -> None:
    start(options={"pods": "1"})
    first, second = job_of("sleep 1000"), job_of("echo hello")
    centre.create(first)
    centre.create(second)
    centre.until(second.name, lambda status: status.phase == QUEUED)
    assert centre.logs(second.name) == b""
    data, end = centre.window(second.name, follow=True, wait_s=1)
    assert (data, end.over) == (b"", False)
    centre.delete(first.name, grace=0)
    assert centre.logs(second.name, follow=True) == b"hello\n"


def test_the_start_before_the_last(start: Start, centre: Centre, tmp_path: Path) -> None:
    start()
    script = f"echo x >>{tmp_path}/starts; wc -l <{tmp_path}/starts; sleep 0.5; exit 1"
    job = job_of(script, restartPolicy="OnFailure")
    centre.create(job)
    centre.until(job.name, lambda s: s.containers[0].state.reason == "CrashLoopBackOff")
    # The last start has ended and no other one has begun: it is what kubectl shows both ways.
    assert centre.logs(job.name) == b"2\n"
    assert centre.logs(job.name, previous=True) == b"2\n"


def test_the_start_before_the_last_of_a_job_that_has_ended(
    start: Start, centre: Centre, tmp_path: Path
) -> None:
    start()
    script = f"echo x >>{tmp_path}/starts; wc -l <{tmp_path}/starts; test -e {tmp_path}/once || "
    script += f"{{ >{tmp_path}/once; exit 1; }}"
    job = job_of(script, restartPolicy="OnFailure")
    centre.create(job)
    centre.ended(job.name)
    assert centre.logs(job.name) == b"2\n"
    assert centre.logs(job.name, previous=True) == b"1\n"


def test_a_job_that_never_began_shows_what_it_said(
    start: Start, centre: Centre, tmp_path: Path
) -> None:
    submitter = start(options={"pods": "1"})
    first, second = job_of("sleep 1000"), job_of()
    centre.create(first)
    centre.create(second)
    script = submitter.directory / "jobs" / second.name / "job.sh"
    eventually(script.exists, why="it is first in the queue")
    script.write_text("echo 'the node is on fire'; exit 9\n")
    centre.delete(first.name, grace=0)
    centre.ended(second.name)
    log = centre.logs(second.name)
    assert b"no container was started" in log
    assert b"the node is on fire" in log
