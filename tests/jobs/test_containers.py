"""Init containers, sidecars and main containers: their order, what they share, how they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.lib.interlink import free_port
from templates.job.records import RUNNING, TERMINATED, Record
from tests.support.processes import assert_none_left, marked
from tests.support.script_runner import ALICE, BUSYBOX, Finished, Site, pod, sh

WORK = {"name": "work", "mountPath": "/work"}
VOLUMES = [{"name": "work", "emptyDir": {}}]
# Waits for a file that another container makes, and fails when it never comes.
AWAIT = 'await() { for i in $(seq 300); do [ ! -e "$1" ] || return 0; sleep 0.1; done; exit 99; }; '


def init(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": BUSYBOX, "volumeMounts": [WORK], **sh(script, **more)}


def sidecar(name: str, script: str, **more: Any) -> dict[str, Any]:
    return {**init(name, script, **more), "restartPolicy": "Always"}


def at(done: Finished, container: str, state: str) -> Record:
    found = [
        record
        for record in done.records
        if record.stream == f"c.{container}" and record.values["state"] == state
    ]
    return found[0]


def test_init_containers_run_one_after_the_other_and_before_all_others(every_site: Site) -> None:
    done = every_site.run(
        pod(
            sh("echo main >&2"),
            initContainers=[
                {"name": name, "image": BUSYBOX, **sh(f"sleep 0.2; echo {name}")}
                for name in ("one", "two", "three")
            ],
        )
    )
    assert done.code == 0, done
    order = ["one", "two", "three", "c0"]
    for before, after in zip(order, order[1:]):
        ended = done.state.containers[before].end
        assert ended is not None
        begun = done.state.containers[after].end
        assert begun is not None
        assert ended.finished_ms <= begun.started_ms
    assert [done.log(name) for name in order] == ["one\n", "two\n", "three\n", "main\n"]


def test_the_first_init_container_that_fails_ends_the_pod(site: Site) -> None:
    done = site.run(
        pod(
            sh("echo never"),
            initContainers=[
                {"name": "good", "image": BUSYBOX, **sh("true")},
                {"name": "bad", "image": BUSYBOX, **sh("exit 7")},
                {"name": "later", "image": BUSYBOX, **sh("echo never")},
            ],
        )
    )
    assert done.ends() == {"good": 0, "bad": 7}
    assert done.code == done.state.exit_code == 7
    assert not list(done.directory.glob("logs/later.*"))
    assert not list(done.directory.glob("logs/c0.*"))


def test_main_containers_run_at_the_same_time_and_share_volumes(every_site: Site) -> None:
    done = every_site.run(
        pod(
            sh(AWAIT + "touch /work/a; await /work/b; await /work/c", volumeMounts=[WORK]),
            sh(AWAIT + "await /work/a; touch /work/b; await /work/c", volumeMounts=[WORK]),
            sh(AWAIT + "await /work/b; touch /work/c", volumeMounts=[WORK]),
            volumes=VOLUMES,
        )
    )
    assert done.ends() == {"c0": 0, "c1": 0, "c2": 0}, done.log("c0")


@pytest.mark.apptainer
@pytest.mark.parametrize("volumes", [[], VOLUMES])
def test_an_ordinary_user_stays_one_without_containers(folder: Path, volumes: list[Any]) -> None:
    mounts = [WORK] if volumes else []
    script = "id -u; awk '/^Cap(Inh|Prm|Eff|Amb)/ { print $2 }' /proc/self/status"
    done = Site("host-alice", folder).run(pod(sh(script, volumeMounts=mounts), volumes=volumes))
    assert done.log("c0").split() == [str(ALICE), *["0" * 16] * 4]


def test_containers_of_a_pod_share_localhost(site: Site) -> None:
    port = free_port()
    serve = f"""echo hello >/work/index.html
        busybox httpd -f -p 127.0.0.1:{port} -h /work & await /work/seen; kill $!"""
    ask = f"""for i in $(seq 300); do
            busybox wget -q -O - http://127.0.0.1:{port}/ 2>/dev/null && exec touch /work/seen
            sleep 0.1
        done; exit 1"""
    done = site.run(
        pod(sh(AWAIT + serve, volumeMounts=[WORK]), sh(ask, volumeMounts=[WORK]), volumes=VOLUMES)
    )
    assert done.log("c1") == "hello\n"


def test_containers_do_not_share_their_file_systems(container_site: Site) -> None:
    look = "ls /only-mine /tmp/only-mine /var/tmp/only-mine 2>/dev/null | wc -l; touch /work/looked"
    write = "touch /only-mine /tmp/only-mine /var/tmp/only-mine && touch /work/made"
    done = container_site.run(
        pod(
            sh(AWAIT + write + "; await /work/looked", volumeMounts=[WORK]),
            sh(AWAIT + "await /work/made; " + look, volumeMounts=[WORK]),
            volumes=VOLUMES,
        )
    )
    assert done.ends() == {"c0": 0, "c1": 0}, done.log("c0")
    assert done.log("c1") == "0\n"


def test_a_main_container_that_fails_does_not_stop_the_others(site: Site) -> None:
    done = site.run(
        pod(
            sh("exit 3"),
            sh(AWAIT + "await /work/go; echo to the end", volumeMounts=[WORK]),
            sh("sleep 1; touch /work/go", volumeMounts=[WORK]),
            volumes=VOLUMES,
        )
    )
    assert done.ends() == {"c0": 3, "c1": 0, "c2": 0}
    assert done.log("c1") == "to the end\n"
    assert done.code == done.state.exit_code == 3


@pytest.mark.parametrize("code", [0, 1, 42, 125, 126, 127, 128, 129, 255])
def test_the_exit_code_is_the_containers_own(site: Site, code: int) -> None:
    done = site.run(pod(sh(f"exit {code}")))
    end = done.state.containers["c0"].end
    assert end is not None
    assert (end.exit_code, end.reason) == (code, "Error" if code else "Completed")
    assert done.code == code


@pytest.mark.parametrize(("signal", "number"), [("KILL", 9), ("SEGV", 11), ("TERM", 15)])
def test_a_container_that_dies_of_a_signal_says_which(
    every_site: Site, signal: str, number: int
) -> None:
    # A child, because the first process of a PID namespace does not feel its own signals.
    done = every_site.run(pod(sh(f"sh -c 'kill -{signal} $$$$'; exit $?")))
    end = done.state.containers["c0"].end
    assert end is not None
    assert (end.exit_code, end.signal, end.reason) == (128 + number, number, "Error")


def test_start_and_end_enclose_what_the_container_did(site: Site) -> None:
    done = site.run(pod(sh("date +%s; sleep 1; date +%s")))
    end = done.state.containers["c0"].end
    assert end is not None
    first, last = map(int, done.log("c0").split())
    assert done.state.started_ms <= end.started_ms <= 1000 * first + 999
    assert 1000 * last <= end.finished_ms <= done.state.finished_ms
    assert at(done, "c0", RUNNING).at_ms >= end.started_ms
    assert at(done, "c0", TERMINATED).at_ms >= end.finished_ms


def test_a_command_that_is_not_there_fails_in_words(every_site: Site) -> None:
    done = every_site.run(pod({"command": ["/no/such/command"]}, sh("echo fine")))
    end = done.state.containers["c0"].end
    assert end is not None
    assert end.exit_code != 0
    assert "/no/such/command" in done.log("c0")
    assert done.log("c1") == "fine\n"


def test_sidecars_start_in_order_and_stay_beside_the_main_containers(site: Site) -> None:
    beat = "echo start; trap 'echo end; exit 0' TERM; while :; do touch /work/{0}; sleep 0.1; done"
    done = site.run(
        pod(
            sh(
                "rm -f /work/one /work/two;" + AWAIT + "await /work/one; await /work/two",
                volumeMounts=[WORK],
            ),
            initContainers=[
                sidecar("one", beat.format("one")),
                init("between", AWAIT + "await /work/one"),
                sidecar("two", beat.format("two")),
            ],
            volumes=VOLUMES,
        )
    )
    assert done.code == 0, done
    assert done.ends()["between"] == done.ends()["c0"] == 0
    started = [at(done, name, RUNNING).at_ms for name in ("one", "between", "two", "c0")]
    assert started == sorted(started)


def test_sidecars_are_stopped_last_and_in_reverse(site: Site) -> None:
    beat = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
    done = site.run(
        pod(
            sh(AWAIT + "await /work/c1", volumeMounts=[WORK]),
            sh("touch /work/c1", volumeMounts=[WORK]),
            initContainers=[sidecar(name, beat) for name in ("one", "two", "three")],
            volumes=VOLUMES,
        )
    )
    assert done.code == 0, done
    mains = [at(done, name, TERMINATED) for name in ("c0", "c1")]
    sidecars = [at(done, name, TERMINATED) for name in ("three", "two", "one")]
    times = [int(record.values["finished"]) for record in sidecars]
    assert times == sorted(times)
    assert max(int(record.values["finished"]) for record in mains) <= times[0]
    starts = [int(record.values["started"]) for record in sidecars]
    assert starts == sorted(starts, reverse=True)


def test_a_sidecars_startup_probe_holds_the_next_container_back(site: Site) -> None:
    probe = {"exec": {"command": ["test", "-e", "/work/ready"]}, "periodSeconds": 1}
    done = site.run(
        pod(
            sh("cat /work/ready", volumeMounts=[WORK]),
            initContainers=[
                sidecar(
                    "side",
                    "trap 'exit 0' TERM; sleep 1; echo yes >/work/ready; while sleep 1; do :; done",
                    startupProbe={**probe, "failureThreshold": 60, "timeoutSeconds": 60},
                )
            ],
            volumes=VOLUMES,
        )
    )
    assert done.code == 0, done
    assert done.log("c0") == "yes\n"


def test_a_sidecar_that_dies_is_started_again_and_does_not_fail_the_pod(site: Site) -> None:
    script = "trap 'exit 0' TERM; [ -e /work/again ] || { touch /work/again; exit 5; }"
    running = site.start(
        pod(
            sh(AWAIT + "await /work/go", volumeMounts=[WORK]),
            initContainers=[
                sidecar("side", script + "; touch /work/go; while :; do sleep 0.1; done")
            ],
            volumes=VOLUMES,
        )
    )
    done = running.wait()
    side = done.state.containers["side"]
    assert side.restarts == 1
    assert side.last_end is not None
    assert side.last_end.exit_code == 5
    assert done.code == 0, done


def test_no_process_of_any_container_outlives_the_pod(every_site: Site) -> None:
    def leave(seconds: int) -> dict[str, Any]:
        script = (
            f"sleep {seconds} & (setsid sleep {seconds} &); (sleep {seconds} &); exec sleep 0.5"
        )
        return marked(every_site.folder, sh(script))

    stay = marked(every_site.folder, sh("sleep 600 & (setsid sleep 600 &); wait"))
    done = every_site.run(
        pod(
            leave(600),
            leave(601),
            initContainers=[
                {"name": "init", "image": BUSYBOX, **leave(602)},
                {"name": "side", "image": BUSYBOX, "restartPolicy": "Always", **stay},
            ],
            terminationGracePeriodSeconds=1,
        )
    )
    assert done.code == 0, done
    assert_none_left(every_site.folder)
