"""What a container leaves to be read: its termination message, its log, and the log's index."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from templates.job.records import End
from tests.support.script_runner import Finished, Site, pod, sh

WORK = {"name": "work", "mountPath": "/work"}
VOLUMES = [{"name": "work", "emptyDir": {}}]
FALLBACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def end_of(done: Finished, container: str = "c0") -> End:
    end = done.state.containers[container].end
    assert end is not None, done
    return end


def test_a_message_is_taken_from_the_default_path(every_site: Site) -> None:
    script = "echo one >/dev/termination-log; printf two >>/dev/termination-log"
    done = every_site.run(pod(sh(script, volumeMounts=[WORK]), volumes=VOLUMES))
    assert (done.code, end_of(done).message) == (0, "one\ntwo"), done.log("c0")


@pytest.mark.parametrize("user", ["host", pytest.param("host-alice", marks=pytest.mark.apptainer)])
def test_without_volumes_the_default_path_is_not_the_nodes(folder: Path, user: str) -> None:
    theirs = Path("/dev/termination-log")
    before = theirs.read_bytes() if theirs.exists() else None
    script = "[ ! -s /dev/termination-log ] && : >/dev/null && echo $1 >/dev/termination-log"
    site = Site(user, folder)
    done = site.run(pod(sh(script, "one"), sh(f"{script}; exit 3", "two")))
    assert [end_of(done, name).message for name in ("c0", "c1")] == ["one\n", "two\n"]
    assert done.ends() == {"c0": 0, "c1": 3}
    assert (theirs.read_bytes() if theirs.exists() else None) == before


@pytest.mark.parametrize("user", ["host", pytest.param("host-alice", marks=pytest.mark.apptainer)])
def test_a_mount_that_fails_is_told_in_the_message(folder: Path, user: str) -> None:
    """The kubelet says such a thing in its status, too, where one does not have to look for it."""
    below_a_file = {"name": "work", "mountPath": "/etc/passwd/x"}
    done = Site(user, folder).run(
        pod(
            sh("echo never", volumeMounts=[below_a_file]),
            sh("echo never", volumeMounts=[WORK], workingDir="/no/such/place"),
            sh("echo never", workingDir="/no/such/place"),
            volumes=VOLUMES,
        )
    )
    assert done.ends() == {"c0": 128, "c1": 128, "c2": 128}
    place = "cannot change to workingDir /no/such/place: No such file or directory"
    told = ["cannot mount /etc/passwd/x: Not a directory", place, place]
    for number, words in enumerate(told):
        assert end_of(done, f"c{number}").message == f"{words}\n"
        assert done.log(f"c{number}") == f"interlink: c{number}: {words}\n"


def test_each_container_has_a_message_path_of_its_own(site: Site) -> None:
    done = site.run(
        pod(
            sh("echo a >/var/tmp/message", terminationMessagePath="/var/tmp/message"),
            sh("mkdir -p /x; echo b >/x/message; exit 1", terminationMessagePath="/x/message"),
            sh("true", terminationMessagePath="/y/message"),
        )
    )
    messages = [end_of(done, name).message for name in ("c0", "c1", "c2")]
    assert messages == ["a\n", "b\n", ""]


def test_a_message_path_can_lie_in_a_volume(site: Site) -> None:
    done = site.run(
        pod(
            sh("echo x >/work/m", volumeMounts=[WORK], terminationMessagePath="/work/m"),
            volumes=VOLUMES,
        )
    )
    assert end_of(done).message == "x\n"


def test_a_message_is_cut_at_4096_bytes(site: Site) -> None:
    script = "i=0; while [ $i -lt 500 ]; do printf '%09d\\n' $i; i=$((i + 1)); done >/x/message"
    done = site.run(pod(sh(script, terminationMessagePath="/x/message")))
    message = end_of(done).message
    assert len(message) == 4096
    assert message.splitlines()[0] == "000000000"
    assert message.splitlines()[408] == "000000408"


def test_messages_of_containers_that_end_together_do_not_mix(site: Site) -> None:
    containers = [
        sh(
            "until [ -e /work/go ]; do sleep 0.05; done; "
            f"head -c 4096 /dev/zero | tr '\\0' {letter} >/m/m",
            volumeMounts=[WORK],
            terminationMessagePath="/m/m",
        )
        for letter in "abcd"
    ]
    done = site.run(
        pod(*containers, sh("sleep 1; touch /work/go", volumeMounts=[WORK]), volumes=VOLUMES)
    )
    messages = [end_of(done, f"c{index}").message for index in range(4)]
    assert messages == [letter * 4096 for letter in "abcd"]


def test_a_message_may_be_any_bytes(site: Site) -> None:
    script = "printf '\\377\\000\\303\\244 \\047; x=$(y)\\n\\n' >/x/message"
    done = site.run(pod(sh(script, terminationMessagePath="/x/message")))
    assert end_of(done).message == "\ufffdä '; x=$(y)\n\n"


def test_the_end_of_the_log_is_the_message_of_a_container_that_failed(site: Site) -> None:
    lines = "i=0; while [ $i -lt 100 ]; do echo line $i >&2; i=$((i + 1)); done; exit 3"
    done = site.run(pod(sh(lines, **FALLBACK), sh(lines)))
    told = end_of(done).message.splitlines()
    assert (told[0], told[-1], len(told)) == ("line 20", "line 99", 80)
    assert end_of(done, "c1").message == ""


def test_no_more_than_2048_bytes_of_the_log_become_the_message(site: Site) -> None:
    script = "head -c 5000 /dev/zero | tr '\\0' x; printf end; exit 1"
    done = site.run(pod(sh(script, **FALLBACK)))
    assert end_of(done).message == "x" * 2045 + "end"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo log; exit 0", ""),
        ("echo log; echo own >/x/message; exit 1", "own\n"),
        ("echo log; exit 1", "log\n"),
    ],
)
def test_the_log_is_the_message_only_of_a_failure_without_one(
    site: Site, script: str, message: str
) -> None:
    done = site.run(pod(sh(script, terminationMessagePath="/x/message", **FALLBACK)))
    assert end_of(done).message == message


# --- logs ----------------------------------------------------------------------------------------


def test_a_log_is_one_file_with_both_streams_in_order(every_site: Site) -> None:
    script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done; printf 'no newline'"
    done = every_site.run(pod(sh(script)))
    lines = "".join(f"out {i}\nerr {i}\n" for i in (1, 2, 3))
    assert done.log("c0") == lines + "no newline"


def test_a_log_can_be_read_while_it_grows(site: Site) -> None:
    running = site.start(
        pod(
            sh(
                "echo first; until [ -e /work/go ]; do sleep 0.1; done; echo second",
                volumeMounts=[WORK],
            ),
            volumes=VOLUMES,
        )
    )
    log = running.directory / "logs" / "c0.0.log"
    running.until(lambda _: log.exists() and log.read_bytes() == b"first\n")
    inode = log.stat().st_ino
    (running.directory / "scratch" / "work" / "go").touch()
    running.wait()
    assert log.read_bytes() == b"first\nsecond\n"
    assert log.stat().st_ino == inode


def test_a_log_takes_every_byte_as_it_is(site: Site) -> None:
    script = """i=0; while [ $i -lt 256 ]; do printf "\\\\$(printf %03o $i)"; i=$((i + 1)); done
        head -c 300000 /dev/zero"""
    done = site.run(pod(sh(script)))
    content = (done.directory / "logs" / "c0.0.log").read_bytes()
    expected = bytes(range(256)) + b"\0" * 300000
    assert hashlib.sha256(content).digest() == hashlib.sha256(expected).digest(), len(content)


def index_of(done: Finished, container: str = "c0") -> list[tuple[int, int]]:
    text = (done.directory / "logs" / f"{container}.0.log.idx").read_text()
    return [(int(second), int(size)) for second, size in map(str.split, text.splitlines())]


def seconds_of(index: list[tuple[int, int]], position: int) -> int:
    """When the byte at a position was written, according to the index."""
    return next(second for second, size in index if size > position)


def test_the_index_says_in_which_second_each_byte_was_written(site: Site) -> None:
    # Each line names the moment just before it was written, to the nanosecond where date can.
    write = "for i in 1 2 3 4 5 6; do date +%s; sleep 0.7; done"
    done = site.run(pod(sh(write)))
    content = (done.directory / "logs" / "c0.0.log").read_text()
    index = index_of(done)
    sizes = [size for _, size in index]
    assert sizes == sorted(sizes)
    assert [second for second, _ in index] == sorted(second for second, _ in index)
    assert sizes[-1] == len(content)
    position = 0
    for line in content.splitlines(keepends=True):
        assert abs(seconds_of(index, position) - int(line)) <= 1, (line, index)
        position += len(line)
    assert len({second for second, _ in index}) >= 4, "the index is finer than that"


def test_a_container_that_says_nothing_has_an_empty_log(site: Site) -> None:
    done = site.run(pod(sh("true")))
    assert done.log("c0") == ""
    index = done.directory / "logs" / "c0.0.log.idx"
    assert not index.exists() or index.read_text() == ""


def test_each_container_has_logs_of_its_own(site: Site) -> None:
    containers: list[dict[str, Any]] = [sh(f"echo {index}") for index in range(3)]
    done = site.run(pod(*containers))
    assert [done.log(f"c{index}") for index in range(3)] == ["0\n", "1\n", "2\n"]


def test_nobody_else_can_read_a_log(site: Site) -> None:
    done = site.run(pod(sh("umask 0; echo x")))
    for path in done.directory.glob("logs/*"):
        assert path.stat().st_mode & 0o077 == 0
