"""However a pod is told to end: its containers are told, waited for, killed; nothing is left."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from templates.job.records import RUNNING, JobState, fold, parse_lines, parse_name
from templates.script.jinja import render
from templates.site.build_config import BuildConfig, Runtime
from templates.translation.build import build
from tests.support.processes import MARK, assert_none_left, kill_left, marked
from tests.support.script_runner import (
    BUSYBOX,
    Finished,
    Running,
    Site,
    manifests,
    pod,
    sh,
    with_images,
    with_script,
)

WORK = {"name": "work", "mountPath": "/work"}
VOLUMES = [{"name": "work", "emptyDir": {}}]
GRACEFUL = "trap 'echo told; exit 7' TERM; echo up; while :; do sleep 0.1; done"
DEAF = "trap '' TERM; echo up; while :; do sleep 0.1; done"


def wait_for_log(running: Running, text: str = "up", container: str = "c0") -> None:
    """Until a container has said something."""
    log = running.directory / "logs" / f"{container}.0.log"
    running.until(lambda state: log.exists() and text in log.read_text())


def run_and_terminate(site: Site, *containers: dict[str, Any], **spec: Any) -> Finished:
    names = [f"c{index}" for index in range(len(containers))]
    running = site.start(pod(*(marked(site.folder, c) for c in containers), **spec))
    for name in names:
        wait_for_log(running, "up", name)
    running.terminate()
    done = running.wait()
    assert_over(site, done)
    return done


def assert_over(site: Site, done: Finished) -> None:
    """What must hold whatever has happened."""
    last = done.records[-1]
    assert (last.stream, last.values["state"]) == ("job", "finished"), done
    assert not (done.directory / "secret").exists()
    assert not (done.directory / "run").exists()
    spooled: set[tuple[str, int]] = set()
    for path in (done.directory / "spool").iterdir():
        records = parse_lines(path.read_bytes())
        assert parse_name(path.name) == records[-1][:4]
        spooled |= {(record.stream, record.number) for record in records}
    assert spooled == {(record.stream, record.number) for record in done.records}
    assert_none_left(site.folder)


def took(state: JobState, container: str = "c0") -> float:
    end = state.containers[container].end
    assert end is not None
    return (end.finished_ms - end.started_ms) / 1000


def test_a_container_that_is_told_to_end_can_do_so_in_its_own_way(every_site: Site) -> None:
    done = run_and_terminate(every_site, sh(GRACEFUL), sh(GRACEFUL))
    assert done.ends() == {"c0": 7, "c1": 7}
    assert done.log("c0") == "up\ntold\n"
    assert "the batch system ended the job" in done.state.message
    assert done.code == 7


AWAIT = """
set -m
stop='' seen=''
exec 9<> <(:)
pause() { read -r -t "$1" -u 9 _; }
react() { :; }
on_term() { caught=1 stop=1; }
trap on_term TERM
"""
STORM = """
for ((n = 0; n < 50; n++)); do
    (trap 'exit 0' TERM; sleep 0.02) & child=$!
    (set +m; while kill -TERM $$; do :; done) & stormy=$!
    await "$child" react
    seen+=" $code"
    kill -KILL -- "-$stormy"
    until caught=; wait "$stormy"; [ -z "$caught" ]; do :; done
done 2>/dev/null
trap - TERM
echo $seen
"""
TOGETHER = """
sleep 600 & sibling=$!
trap 'kill -KILL "$sibling"' EXIT
for ((n = 0; n < 20; n++)); do
    (trap - TERM EXIT; pause 0.02; kill -TERM $$; exit 7) & child=$!
    await "$child" react
    seen+=" $code"
done
echo $seen
"""


def await_in(script: str) -> list[str]:
    """Run a script that has ``await`` and what it calls; the words that it prints."""
    job = build(manifests(pod(sh("true"))), BuildConfig(runtime=Runtime(name="host")))
    functions = re.findall(
        r"^(?:await|until_gone)\(\) \{.*?^\}.*?$", job.script, re.DOTALL | re.MULTILINE
    )
    with subprocess.Popen(
        ["bash", "-c", "\n".join(functions) + AWAIT + script],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            return running.communicate(timeout=120)[0].split()
        finally:
            for process in everyone_below(running.pid):
                send(process, signal.SIGKILL)


def test_a_signal_that_comes_after_the_end_is_not_the_exit_code() -> None:
    """Those who are to end are told again and again, also when their containers just have."""
    assert await_in(STORM) == ["0"] * 50


def test_the_exit_code_is_kept_when_the_signal_comes_with_the_end() -> None:
    """On one processor, where nothing wakes the shell before the child has ended as well."""
    processors, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    os.sched_setaffinity(0, {min(processors)})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        assert await_in(TOGETHER) == ["7"] * 20
    finally:
        os.sched_setscheduler(0, policy, os.sched_param(0))
        os.sched_setaffinity(0, processors)


def test_a_container_that_ignores_it_is_killed_after_the_grace_period(every_site: Site) -> None:
    done = run_and_terminate(every_site, sh(DEAF), terminationGracePeriodSeconds=1)
    assert done.ends() == {"c0": 137}
    assert done.code == 137
    assert done.output == ""


def test_a_pod_that_was_ended_has_not_succeeded(site: Site) -> None:
    polite = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"
    done = run_and_terminate(site, sh(polite))
    assert done.ends() == {"c0": 0}
    assert done.code != 0


def test_a_job_that_can_write_nothing_any_more_ends_all_the_same(every_site: Site) -> None:
    """As when somebody has removed its directory, or filled the file system."""
    running = every_site.start(pod(marked(every_site.folder, sh(GRACEFUL))))
    wait_for_log(running)
    shutil.rmtree(running.directory)
    running.terminate()
    assert running.wait().code == 7
    assert_none_left(every_site.folder)


def test_processes_in_sessions_of_their_own_end_too(every_site: Site) -> None:
    script = "setsid sleep 600 & (setsid sleep 600 &) ; (trap '' TERM HUP; sleep 600 &); "
    done = run_and_terminate(every_site, sh(script + GRACEFUL), terminationGracePeriodSeconds=2)
    assert done.ends() == {"c0": 7}


def test_the_deadline_ends_the_pod_in_words(site: Site) -> None:
    done = site.run(
        pod(
            marked(site.folder, sh(GRACEFUL)),
            marked(site.folder, sh(DEAF)),
            activeDeadlineSeconds=3,
            terminationGracePeriodSeconds=1,
        )
    )
    assert done.ends() == {"c0": 7, "c1": 137}
    assert done.state.message.startswith("DeadlineExceeded"), done
    assert took(done.state) >= 1
    assert done.code != 0
    assert_over(site, done)


def test_a_pod_past_its_deadline_has_failed_even_if_its_containers_have_not(folder: Path) -> None:
    well = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"
    done = Site("host", folder).run(pod(marked(folder, sh(well)), activeDeadlineSeconds=1))
    assert done.ends() == {"c0": 0}
    assert (done.code, done.state.exit_code) == (1, 1)
    assert done.state.message.startswith("DeadlineExceeded: the pod was active on the node longer")
    assert done.state.containers["c0"].end is not None
    assert done.state.containers["c0"].end.message.startswith("DeadlineExceeded: ")


def test_a_pod_in_time_knows_nothing_of_its_deadline(site: Site) -> None:
    done = site.run(pod(sh("true"), activeDeadlineSeconds=600))
    assert (done.code, done.state.message) == (0, "")


def test_ended_during_an_init_container_the_rest_never_starts(site: Site) -> None:
    running = site.start(
        pod(
            sh("echo never"),
            initContainers=[
                {"name": name, "image": BUSYBOX, **marked(site.folder, sh(GRACEFUL))}
                for name in ("one", "two")
            ],
        )
    )
    wait_for_log(running, "up", "one")
    running.terminate()
    done = running.wait()
    assert done.ends() == {"one": 7}
    assert done.code == 7
    assert_over(site, done)


def test_ended_between_two_restarts_it_waits_no_longer(site: Site) -> None:
    config = with_script(site.config, restart_backoff_s=3600)
    running = site.start(pod(sh("exit 9"), restartPolicy="Always"), config)
    running.until(
        lambda state: any(c.reason == "CrashLoopBackOff" for c in state.containers.values())
    )
    running.terminate()
    done = running.wait()
    assert done.code == 9
    assert_over(site, done)


def test_ended_while_an_image_is_pulled_it_waits_no_longer(container_site: Site) -> None:
    with socket.socket() as registry:  # takes the call and never answers
        registry.bind(("127.0.0.1", 0))
        registry.listen(8)
        image = f"127.0.0.1:{registry.getsockname()[1]}/slow/image:1"
        running = container_site.start(pod({**sh("echo never"), "image": image}))
        registry.settimeout(60)
        connection, _ = registry.accept()
        running.terminate()
        done = running.wait()
        connection.close()
    assert done.code != 0
    assert_over(container_site, done)


def test_ended_while_a_pull_is_about_to_be_tried_again_it_waits_no_longer(
    container_site: Site,
) -> None:
    config = with_images(container_site.config, pull_attempts=5, pull_backoff_s=3600)
    nobody = {**sh("echo never"), "image": "127.0.0.1:1/no/image:1"}
    running = container_site.start(pod(nobody), config)
    running.until(
        lambda state: any(c.reason == "ImagePullBackOff" for c in state.containers.values())
    )
    running.terminate()
    done = running.wait()
    assert done.code != 0
    assert_over(container_site, done)


def test_sidecars_go_last_when_the_pod_is_ended(site: Site) -> None:
    running = site.start(
        pod(
            marked(
                site.folder, sh("trap 'sleep 1; exit 0' TERM; echo up; while :; do sleep 0.1; done")
            ),
            initContainers=[
                {
                    "name": name,
                    "image": BUSYBOX,
                    "restartPolicy": "Always",
                    **marked(site.folder, sh(GRACEFUL)),
                }
                for name in ("one", "two")
            ],
        )
    )
    wait_for_log(running)
    wait_for_log(running, "up", "one")
    wait_for_log(running, "up", "two")
    running.terminate()
    done = running.wait()
    ends = [done.state.containers[name].end for name in ("c0", "two", "one")]
    times = [end.finished_ms for end in ends if end is not None]
    assert len(times) == 3
    assert times == sorted(times)
    assert_over(site, done)


def everyone(running: Running) -> list[int]:
    """Every process of the job's script and all below it."""
    return everyone_below(running.script_pid())


def everyone_below(root: int) -> list[int]:
    """Return a process and all below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
        except (OSError, ValueError):
            continue
    members = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        if not more:
            return sorted(members)
        members |= more


def signal_everyone(running: Running, number: int) -> None:
    for pid in everyone(running):
        send(pid, number)


def send(pid: int, number: int) -> None:
    """A signal, unless the process (the watcher starts short ones) has just ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


@pytest.mark.parametrize("times", [1, 5])
def test_the_signal_may_go_to_every_process_of_the_job_at_once(
    every_site: Site, times: int
) -> None:
    running = every_site.start(
        pod(
            marked(every_site.folder, sh(DEAF)),
            marked(every_site.folder, sh("echo up; sleep 600")),
            initContainers=[
                {
                    "name": "side",
                    "image": BUSYBOX,
                    "restartPolicy": "Always",
                    **marked(every_site.folder, sh(DEAF)),
                }
            ],
            terminationGracePeriodSeconds=2,
        )
    )
    for name in ("c0", "c1", "side"):
        wait_for_log(running, "up", name)
    for _ in range(times):
        try:
            signal_everyone(running, signal.SIGTERM)
        except AssertionError:
            break  # over already
        time.sleep(0.3)
    done = running.wait()
    assert done.code != 0
    # 135: the process behind Apptainer's mount of the image is told to end as well, and then what
    # runs from that image dies of SIGBUS.
    assert done.ends()["c0"] in (135, 137, 143)
    assert_over(every_site, done)


def test_a_container_that_is_stopped_and_continued_goes_on(site: Site) -> None:
    running = site.start(
        pod(
            marked(
                site.folder,
                sh(
                    "echo up; until [ -e /work/go ]; do sleep 0.1; done; exit 5",
                    volumeMounts=[WORK],
                ),
            ),
            volumes=VOLUMES,
        )
    )
    wait_for_log(running)
    state = running.until(lambda state: "c0" in state.containers)
    assert state.containers["c0"].state == RUNNING
    script = running.script_pid()
    below = [pid for pid in everyone(running) if parent_of(parent_of(pid)) == script]
    assert below
    for pid in below:
        send(pid, signal.SIGSTOP)
    (running.directory / "scratch" / "work" / "go").touch()
    time.sleep(0.5)
    assert running.state.containers["c0"].state == RUNNING
    for pid in below:
        send(pid, signal.SIGCONT)
    done = running.wait()
    assert done.ends() == {"c0": 5}


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_a_stopped_container_is_killed_all_the_same(site: Site) -> None:
    running = site.start(
        pod(
            marked(site.folder, sh("echo up; sh -c 'kill -STOP $$$$'; echo woken")),
            terminationGracePeriodSeconds=1,
        )
    )
    wait_for_log(running)
    running.terminate()
    done = running.wait()
    assert done.code != 0
    assert_over(site, done)


def test_the_records_of_a_script_that_was_killed_can_be_read(site: Site) -> None:
    running = site.start(pod(marked(site.folder, sh(GRACEFUL))))
    wait_for_log(running)
    running.until(lambda state: "c0" in state.containers)
    try:
        os.kill(running.script_pid(), signal.SIGKILL)
        running.process.wait(30)
        state = running.state
        assert state.containers["c0"].state == RUNNING
        assert (state.finished_ms, state.started_ms > 0) == (0, True)
    finally:
        kill_left(site.folder)
    assert_none_left(site.folder)


def again(done: Finished, *more: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(done.directory / "job.sh"), str(done.directory)]
    return subprocess.run(
        [*command, *more], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_second_start_of_the_same_job_is_refused(folder: Path) -> None:
    site = Site("host", folder)
    done = site.run(pod(sh("echo ran")))
    second = again(done)
    assert second.returncode == 3
    assert "started before" in second.stderr
    assert done.log("c0") == "ran\n"
    records = parse_lines((done.directory / "records").read_bytes())
    assert fold(records) == done.state
    told = [record for record in records if record.stream == "again"]
    assert [record.values["state"] for record in told] == ["refused"]
    assert (done.directory / "spool" / f"{told[0].job}.{told[0].run}.again.1").exists()


def test_a_second_start_beside_the_first_leaves_it_alone(folder: Path) -> None:
    site = Site("host", folder)
    running = site.start(
        pod(
            sh("echo up; until [ -e /work/go ]; do sleep 0.1; done", volumeMounts=[WORK]),
            volumes=VOLUMES,
        )
    )
    wait_for_log(running)
    second = subprocess.run(
        ["bash", str(running.directory / "job.sh"), str(running.directory)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 3
    assert (running.directory / "secret").exists()
    (running.directory / "scratch" / "work" / "go").touch()
    done = running.wait()
    assert (done.code, done.ends()) == (0, {"c0": 0})


def test_a_site_can_allow_a_second_start_after_a_crash(folder: Path) -> None:
    site = Site("host", folder)
    config = with_script(site.config, rerun=True)
    script = "ls /work | wc -l; touch /work/x; [ -e /var/tmp/{0}.go ] || exec sleep 600"
    text = script.format(folder.name)
    running = site.start(
        pod(marked(folder, sh(text, volumeMounts=[WORK])), volumes=VOLUMES), config
    )
    wait_for_log(running, "0")
    go = Path(f"/var/tmp/{folder.name}.go")
    try:
        signal_everyone(running, signal.SIGKILL)
        running.process.wait(30)
        kill_left(folder)
        first = running.state
        go.touch()
        second = subprocess.run(
            ["bash", str(running.directory / "job.sh"), str(running.directory)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        go.unlink(missing_ok=True)
    state = running.state
    assert second.returncode == 0, (second, state)
    assert second.stderr == ""
    assert state.run > first.run
    end = state.containers["c0"].end
    assert end is not None
    assert end.exit_code == 0
    assert state.containers["c0"].restarts == 1
    logs = [(running.directory / "logs" / f"c0.{number}.log").read_text() for number in (0, 1)]
    assert logs == ["0\n", "0\n"], "each start has empty volumes, and a log of its own"
    assert_none_left(folder)


def end_at_a_random_moment(site: Site, chance: random.Random, everybody: bool) -> None:
    """Start a pod with a bit of everything, and end it somewhere."""
    running = site.start(
        pod(
            marked(site.folder, sh("sleep 0.2; exit 1")),
            marked(site.folder, sh("setsid sleep 600 & wait")),
            initContainers=[
                {"name": "init", "image": BUSYBOX, **marked(site.folder, sh("sleep 0.05"))},
                {
                    "name": "side",
                    "image": BUSYBOX,
                    "restartPolicy": "Always",
                    **marked(site.folder, sh("sleep 0.3")),
                },
            ],
            restartPolicy="OnFailure",
            terminationGracePeriodSeconds=1,
        ),
        with_script(site.config, restart_backoff_s=1),
    )
    while not (running.directory / "records").exists():
        time.sleep(0.001)
    time.sleep(chance.choice([0.0, 0.01, 0.1, 1.0]) * chance.random())
    if everybody:
        signal_everyone(running, signal.SIGTERM)
    else:
        running.terminate()
    done = running.wait()
    assert done.code != 0, done
    assert_over(site, done)


@pytest.mark.parametrize("everybody", [False, True])
def test_the_end_may_come_at_any_moment(site: Site, everybody: bool) -> None:
    chance = random.Random(f"{site.runtime} {everybody}")
    for _ in range(4):
        end_at_a_random_moment(site, chance, everybody)


@pytest.mark.slow
@pytest.mark.parametrize("everybody", [False, True])
def test_the_end_may_come_at_any_of_many_moments(folder: Path, everybody: bool) -> None:
    chance = random.Random(str(everybody))
    for _ in range(150):
        end_at_a_random_moment(Site("host", folder), chance, everybody)


def test_nothing_that_is_just_being_started_outlives_what_is_killed(folder: Path) -> None:
    """As a probe would that is started while those of a container are ended."""
    core = render("core.sh.j2", binds=False, hosts=False, message_paths=False, common=False)
    script = f"""{core}
        set -m
        exec 9<> <(:)
        {{ set -m; for ((i = 0; i < 2000; i++)); do sleep 600 & done; wait; }} &
        until [ "$(pgrep -c -P $!)" -ge 20 ]; do pause 0.01; done
        kill_family $!
    """
    environment = {**os.environ, MARK: folder.name}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["bash", "-c", script], env=environment, check=True, **quiet)
    assert_none_left(folder)
