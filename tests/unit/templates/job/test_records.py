"""Reading records back: what is whole counts, whatever lies around it and in whatever order."""

from __future__ import annotations

import random
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from templates.job.records import (
    RUNNING,
    TERMINATED,
    WAITING,
    ContainerState,
    Record,
    fold,
    parse,
    parse_lines,
    parse_name,
)

JOB = "pod-6a1f0c1e"
# What a job with a restart, a probe and an init container has written, line by line.
REAL = f"""\
interlink1 job={JOB} run=1795016128332 stream=job n=1 at=1795016128337 state=started node=n1 ;
interlink1 job={JOB} run=1795016128332 stream=c.init n=1 at=1795016128350 kind=init \
state=waiting reason=ContainerCreating message= restarts=0 ;
interlink1 job={JOB} run=1795016128332 stream=c.init n=2 at=1795016128360 kind=init \
state=running restarts=0 started=1795016128355 begun=1 ready=1 ;
interlink1 job={JOB} run=1795016128332 stream=c.init n=3 at=1795016128400 kind=init \
state=terminated exit=0 signal=0 reason=Completed started=1795016128355 \
finished=1795016128395 restarts=0 message= ;
interlink1 job={JOB} run=1795016128332 stream=c.main n=1 at=1795016128410 kind=main \
state=running restarts=0 started=1795016128405 begun=0 ready=0 ;
interlink1 job={JOB} run=1795016128332 stream=r.main n=1 at=1795016128500 begun=1 ready=0 \
restarts=0 ;
interlink1 job={JOB} run=1795016128332 stream=r.main n=2 at=1795016128600 begun=1 ready=1 \
restarts=0 ;
interlink1 job={JOB} run=1795016128332 stream=c.main n=2 at=1795016128700 kind=main \
state=terminated exit=137 signal=9 reason=OOMKilled started=1795016128405 \
finished=1795016128690 restarts=0 message=6279650a ;
interlink1 job={JOB} run=1795016128332 stream=c.main n=3 at=1795016128710 kind=main \
state=waiting reason=CrashLoopBackOff message=6261636b restarts=0 ;
interlink1 job={JOB} run=1795016128332 stream=c.main n=4 at=1795016128800 kind=main \
state=running restarts=1 started=1795016128795 begun=0 ready=0 ;
interlink1 job={JOB} run=1795016128332 stream=r.main n=100001 at=1795016128850 begun=1 ready=0 \
restarts=1 ;
interlink1 job={JOB} run=1795016128332 stream=c.main n=5 at=1795016128900 kind=main \
state=terminated exit=3 signal=0 reason=Error started=1795016128795 finished=1795016128890 \
restarts=1 message= ;
interlink1 job={JOB} run=1795016128332 stream=job n=2 at=1795016128950 state=finished exit=3 \
message= ;
interlink1 job={JOB} run=1795016130000 stream=again n=1 at=1795016130001 state=refused message= ;
""".encode()
LINES = REAL.splitlines()


def numbered(stream: str, n: int, values: str, run: int = 5, at: Optional[int] = None) -> Record:
    text = f"interlink1 job={JOB} run={run} stream={stream} n={n} at={at or n} {values} ;"
    record = parse(text.encode())
    assert record is not None
    return record


def main_of(*records: Record) -> ContainerState:
    return fold(records).containers["main"]


def test_a_real_jobs_records_tell_its_whole_story() -> None:
    state = fold(parse_lines(REAL))
    assert (state.run, state.node, state.started_ms) == (1795016128332, "n1", 1795016128337)
    assert (state.finished_ms, state.exit_code, state.message) == (1795016128950, 3, "")
    init, main = state.containers["init"], state.containers["main"]
    assert init.state == TERMINATED
    assert init.end is not None
    assert (init.end.exit_code, init.end.reason, init.end.finished_ms) == (
        0,
        "Completed",
        1795016128395,
    )
    assert main.end is not None
    assert main.last_end is not None
    assert (main.restarts, main.end.exit_code, main.last_end.exit_code) == (1, 3, 137)
    assert (main.last_end.reason, main.last_end.signal) == ("OOMKilled", 9)
    assert main.last_end.message == "bye\n"


@pytest.mark.parametrize("count", range(1, len(LINES) + 1))
def test_a_job_under_way_is_told_as_far_as_it_has_come(count: int) -> None:
    state = fold(parse_lines(b"\n".join(LINES[:count])))
    assert bool(state.finished_ms) == (count >= 13)
    if count == 6:
        assert state.containers["main"] == ContainerState(
            "main", RUNNING, started_ms=1795016128405, begun=True
        )
    if count == 7:
        assert state.containers["main"].ready
    if count == 9:
        main = state.containers["main"]
        assert (main.state, main.reason, main.message) == (WAITING, "CrashLoopBackOff", "back")
        assert main.last_end is not None
    if count == 10:
        assert not state.containers["main"].ready  # readiness was the start's before


@given(st.lists(st.sampled_from(LINES), max_size=40), st.randoms())
def test_any_order_and_repetition_folds_the_same(more: list[bytes], chance: random.Random) -> None:
    lines = [*LINES, *more]
    chance.shuffle(lines)
    assert fold(parse_lines(b"\n".join(lines))) == fold(parse_lines(REAL))


@given(st.sampled_from(LINES), st.integers(min_value=0))
def test_a_torn_line_is_never_another_record(line: bytes, cut: int) -> None:
    assert parse(line) is not None
    assert parse(line[: cut % len(line)]) is None


@given(st.sampled_from(LINES), st.sampled_from(LINES), st.integers(min_value=0))
def test_the_rest_of_a_torn_line_does_not_get_into_the_next(
    torn: bytes, line: bytes, cut: int
) -> None:
    found = parse(torn[: cut % len(torn)] + line)
    assert found == parse(line)


@given(st.sampled_from(LINES), st.integers(min_value=1))
def test_a_line_whose_beginning_is_lost_is_no_record(line: bytes, cut: int) -> None:
    assert parse(line[1 + cut % (len(line) - 1) :]) is None


@given(st.binary())
def test_no_bytes_are_too_strange_to_read(content: bytes) -> None:
    assert fold(parse_lines(content)).containers == {}


@given(st.sampled_from(LINES), st.binary(max_size=40), st.integers(min_value=0))
def test_no_bytes_inside_a_record_are_too_strange_to_read(
    line: bytes, noise: bytes, where: int
) -> None:
    place = where % len(line)
    for record in parse_lines(line[:place] + noise + line[place + len(noise) :]):
        fold([record])


@given(st.text())
def test_no_file_name_is_too_strange_to_read(name: str) -> None:
    found = parse_name(name)
    assert found is None or name.startswith(f"{found[0]}.")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("pod-1.1795016128332.job.1", ("pod-1", 1795016128332, "job", 1)),
        ("pod-1.5.c.main.12", ("pod-1", 5, "c.main", 12)),
        ("pod-1.5.r.main.100001", ("pod-1", 5, "r.main", 100001)),
        ("pod-1.5.again.1", ("pod-1", 5, "again", 1)),
    ],
)
def test_a_spool_files_name_says_whose_it_is(name: str, parts: tuple[str, int, str, int]) -> None:
    assert parse_name(name) == parts


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "pod-1.5.c.main.12.tmp",
        ".nfs000000000000001",
        "pod-1.5.c.main",
        "pod-1.5.x.main.1",
        "pod-1.5.c..1",
        "pod-1.-5.job.1",
        "pod-1.5.job.1234567890123456",
        "POD.5.job.1",
        "../pod.5.job.1",
        "pod-1.5.job.1\n",
        "pod-1.5.job.١",
    ],
)
def test_a_foreign_name_is_left_alone(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b";",
        b"interlink1 ;",
        b"interlink2 job=a run=1 stream=job n=1 at=1 state=started ;",
        b"interlink1 job=a run=1 stream=job n=1 state=started ;",
        b"interlink1 job=a run=x stream=job n=1 at=1 ;",
        b"interlink1 job=../a run=1 stream=job n=1 at=1 ;",
        b"interlink1 job=a run=1 stream=c.../x n=1 at=1 ;",
        b"interlink1 job=a run=1 stream=job n=-1 at=1 ;",
        b"interlink1 job=a run=1 stream=job n=1 at=1 ; more",
        b"interlink1 job=\xff run=1 stream=job n=1 at=1 ;",
        b"interlink1 job=a run=1 stream=job n=1 at=1 x=" + b"y" * 20000 + b" ;",
    ],
)
def test_what_is_not_quite_a_record_is_none(line: bytes) -> None:
    assert parse(line) is None


def test_a_node_or_container_may_be_called_like_the_format() -> None:
    started = numbered("job", 1, "state=started node=interlink1")
    running = numbered("c.interlink1", 1, "state=running restarts=0 started=7 begun=1 ready=1")
    state = fold([running, started])
    assert state.node == "interlink1"
    assert state.containers["interlink1"].ready


def test_a_message_that_is_no_text_is_read_all_the_same() -> None:
    end = "state=terminated exit=1 signal=0 reason=Error started=1 finished=2 restarts=0 message="
    texts = {"6f6b": "ok", "ff": "\ufffd", "f09f98": "\ufffd", "zz": "", "6": "", "": ""}
    for hexadecimal, text in texts.items():
        found = main_of(numbered("c.main", 1, end + hexadecimal)).end
        assert found is not None
        assert found.message == text


def test_numbers_that_are_none_are_zero() -> None:
    main = main_of(numbered("c.main", 1, "state=terminated exit=x started= finished=9e9"))
    assert main.end is not None
    assert (main.end.exit_code, main.end.started_ms, main.end.finished_ms) == (0, 0, 0)


def test_a_later_run_replaces_an_earlier_one() -> None:
    records = [
        numbered("job", 1, "state=started node=old", run=5),
        numbered("c.main", 1, "state=running restarts=0 started=1 begun=1 ready=1", run=5),
        numbered("job", 1, "state=started node=new", run=6),
    ]
    for order in (records, records[::-1]):
        state = fold(order)
        assert (state.run, state.node, state.containers) == (6, "new", {})


def test_a_refused_second_start_is_no_new_run() -> None:
    records = [
        numbered("job", 1, "state=started node=n", run=5),
        numbered("again", 1, "state=refused message=", run=9),
    ]
    assert (fold(records).run, fold(records).node) == (5, "n")


def test_readiness_that_outlived_its_container_changes_nothing() -> None:
    running = numbered("c.main", 1, "state=running restarts=1 started=1 begun=0 ready=0")
    late = numbered("r.main", 7, "begun=1 ready=1 restarts=0")
    assert not main_of(running, late).ready
    ended = numbered("c.main", 2, "state=terminated exit=0 restarts=1")
    assert not main_of(running, ended, numbered("r.main", 8, "ready=1 restarts=1")).ready


def test_readiness_of_a_container_never_heard_of_makes_none() -> None:
    assert fold([numbered("r.main", 1, "begun=1 ready=1 restarts=0")]).containers == {}


def test_no_records_are_a_job_that_has_not_been_heard_of() -> None:
    assert fold([]) == fold(parse_lines(b"")) == fold(parse_lines(b"\n\n\n"))
    assert fold([]).run == 0
