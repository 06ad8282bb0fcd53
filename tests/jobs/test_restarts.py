"""restartPolicy: containers start again in place, with the kubelet's pauses in between."""

from __future__ import annotations

from operator import ge
from typing import Any

import pytest

from templates.job.records import RUNNING, TERMINATED, WAITING, ContainerState, JobState, Record
from templates.site.build_config import BuildConfig
from tests.support.script_runner import BUSYBOX, Finished, Site, pod, sh, with_script

WORK = {"name": "work", "mountPath": "/work"}
VOLUMES = [{"name": "work", "emptyDir": {}}]
# Counts its starts in a shared volume: start number $n, from 0.
COUNT = "n=$(cat /work/n 2>/dev/null || echo 0); echo $((n + 1)) >/work/n; echo start $n; "


def quick(site: Site, longest: int = 300) -> BuildConfig:
    return with_script(site.config, restart_backoff_s=1, restart_backoff_max_s=longest)


def counting(script: str, policy: str, **more: Any) -> dict[str, Any]:
    return pod(
        sh(COUNT + script, volumeMounts=[WORK]), volumes=VOLUMES, restartPolicy=policy, **more
    )


def changes(done: Finished, container: str = "c0") -> list[Record]:
    return [record for record in done.records if record.stream == f"c.{container}"]


def told(done: Finished, container: str = "c0") -> list[tuple[str, str]]:
    """State and number of restarts, of each record."""
    return [(r.values["state"], r.values["restarts"]) for r in changes(done, container)]


@pytest.mark.parametrize("code", [0, 1])
def test_never_means_one_start(site: Site, code: int) -> None:
    done = site.run(counting(f"exit {code}", "Never"), quick(site))
    assert done.code == code
    assert done.log("c0") == "start 0\n"
    assert done.state.containers["c0"].restarts == 0


def test_on_failure_starts_again_until_it_succeeds(site: Site) -> None:
    done = site.run(counting("[ $n -eq 2 ]", "OnFailure"), quick(site))
    main = done.state.containers["c0"]
    assert done.code == 0, done
    assert main.restarts == 2
    assert main.end is not None
    assert main.last_end is not None
    assert (main.end.exit_code, main.last_end.exit_code) == (0, 1)
    assert main.last_end.finished_ms <= main.end.started_ms


def test_on_failure_does_not_restart_what_has_succeeded(site: Site) -> None:
    done = site.run(counting("true", "OnFailure"), quick(site))
    assert (done.code, done.log("c0")) == (0, "start 0\n")


def test_an_init_container_of_an_always_pod_restarts_only_until_it_succeeds(site: Site) -> None:
    running = site.start(
        pod(
            sh("sleep 600"),
            initContainers=[
                {
                    "name": "init",
                    "image": BUSYBOX,
                    "volumeMounts": [WORK],
                    **sh(COUNT + "[ $n -eq 1 ]"),
                }
            ],
            volumes=VOLUMES,
            restartPolicy="Always",
            terminationGracePeriodSeconds=1,
        ),
        quick(site),
    )
    state = running.until(lambda state: is_running(state, "c0"))
    init = state.containers["init"]
    assert (init.state, init.restarts) == (TERMINATED, 1)
    assert init.end is not None
    assert init.end.exit_code == 0
    running.terminate()
    running.wait()


def is_running(state: JobState, container: str, restarts: int = 0) -> bool:
    found = state.containers.get(container, ContainerState(container))
    return found.state == RUNNING and found.restarts == restarts


def test_always_starts_again_what_has_succeeded_too(site: Site) -> None:
    script = "[ $n -lt 2 ] || exec sleep 600; exit $n"
    running = site.start(counting(script, "Always", terminationGracePeriodSeconds=1), quick(site))
    running.until(lambda state: is_running(state, "c0", 2))
    running.terminate()
    done = running.wait()
    ends = [r.values["exit"] for r in changes(done) if r.values["state"] == TERMINATED]
    assert ends[:2] == ["0", "1"]
    assert done.state.message


def test_the_pauses_are_none_then_doubled_up_to_the_longest(site: Site) -> None:
    done = site.run(counting("[ $n -eq 4 ]", "OnFailure"), quick(site, longest=2))
    records = changes(done)
    runs = [
        (int(r.values["started"]), int(r.values["finished"]))
        for r in records
        if r.values["state"] == TERMINATED
    ]
    expected = pauses_after(runs[:-1], longest=2)  # 0, 1, 2, 2 where each run is a short one
    pauses = [(start - end) / 1000 for (_, end), (start, _) in zip(runs, runs[1:])]
    assert all(map(ge, pauses, expected)), (pauses, expected)
    waits = [r.values["message"] for r in records if r.values["state"] == WAITING]
    words = [bytes.fromhex(message).decode() for message in waits]
    assert [text for text in words if text.startswith("back-off")] == [
        f"back-off {seconds}s restarting failed container=c0 pod=pod_default"
        for seconds in filter(None, expected)
    ]


def pauses_after(runs: list[tuple[int, int]], longest: int) -> list[int]:
    """The kubelet's rule: a run of twice the longest pause (a busy machine) begins it anew."""
    pauses: list[int] = []
    for started, ended in runs:
        begins = not pauses or ended - started >= 2000 * longest
        pauses.append(0 if begins else min(max(1, pauses[-1] * 2), longest))
    return pauses


def test_what_waits_for_its_next_start_says_so(site: Site) -> None:
    config = with_script(site.config, restart_backoff_s=3600)
    running = site.start(counting("echo last words; exit 9", "Always"), config)
    state = running.until(
        lambda state: any(c.reason == "CrashLoopBackOff" for c in state.containers.values())
    )
    main = state.containers["c0"]
    assert (main.state, main.ready, main.restarts) == (WAITING, False, 1)
    assert main.last_end is not None
    assert main.last_end.exit_code == 9
    running.terminate()
    done = running.wait()
    end = done.state.containers["c0"].end
    assert end is not None, "a pod that has ended has no container that waits"
    assert end.exit_code == 9
    assert done.code == 9


def test_each_start_is_reported_once_and_counted(site: Site) -> None:
    done = site.run(counting("[ $n -eq 1 ]", "OnFailure"), quick(site))
    ours = [entry for entry in told(done) if entry[0] != WAITING]
    assert ours == [(RUNNING, "0"), (TERMINATED, "0"), (RUNNING, "1"), (TERMINATED, "1")]


def test_only_the_logs_of_this_start_and_the_one_before_are_kept(site: Site) -> None:
    done = site.run(counting("[ $n -eq 3 ]", "OnFailure"), quick(site, longest=1))
    kept = sorted(path.name for path in done.directory.glob("logs/c0.*.log"))
    assert kept == ["c0.2.log", "c0.3.log"]
    assert (done.log("c0", 2), done.log("c0", 3)) == ("start 2\n", "start 3\n")


def test_each_start_has_a_message_of_its_own(site: Site) -> None:
    script = "[ $n -gt 0 ] || echo first >/dev/termination-log; [ $n -eq 1 ]"
    done = site.run(counting(script, "OnFailure"), quick(site))
    main = done.state.containers["c0"]
    assert main.end is not None
    assert main.last_end is not None
    assert (main.last_end.message, main.end.message) == ("first\n", "")


def test_one_container_restarts_while_the_other_runs_on(site: Site) -> None:
    wait = (
        'for i in $(seq 600); do [ "$(cat /work/n 2>/dev/null)" != 3 ] || exit 0; sleep 0.1; done'
    )
    done = site.run(
        pod(
            sh(COUNT + "[ $n -eq 2 ]", volumeMounts=[WORK]),
            sh(wait + "; exit 1", volumeMounts=[WORK]),
            volumes=VOLUMES,
            restartPolicy="OnFailure",
        ),
        quick(site),
    )
    found = done.state.containers
    assert (found["c0"].restarts, found["c1"].restarts, done.code) == (2, 0, 0)


def test_the_volumes_and_not_the_containers_files_outlive_a_restart(container_site: Site) -> None:
    script = "ls /mine /tmp/mine 2>/dev/null | wc -l; touch /mine /tmp/mine; [ $n -eq 1 ]"
    done = container_site.run(counting(script, "OnFailure"), quick(container_site))
    assert done.log("c0", 1) == "start 1\n0\n"


def test_readiness_of_each_start_is_told_apart(site: Site) -> None:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 60}
    script = "for i in $(seq 600); do [ ! -e /work/go$n ] || break; sleep 0.1; done; [ $n -eq 1 ]"
    running = site.start(
        pod(
            sh(COUNT + script, volumeMounts=[WORK], readinessProbe=probe),
            volumes=VOLUMES,
            restartPolicy="OnFailure",
        ),
        quick(site),
    )
    work = running.directory / "scratch" / "work"
    for start in (0, 1):
        running.until(
            lambda state, start=start: (
                is_running(state, "c0", start) and state.containers["c0"].ready
            )
        )
        (work / f"go{start}").touch()
    done = running.wait()
    assert done.code == 0
    names = [(record.stream, record.number) for record in done.records]
    assert len(set(names)) == len(names), "two records of the same name"
