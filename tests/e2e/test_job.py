"""A user's job, from kubectl to a site and back."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.e2e.conftest import SITES
from tests.e2e.sites import DATA, HELD, let_go
from tests.e2e.users import REAL_NODE, VIRTUAL_NODE, User, goes_to
from tests.support.kueue_bed import REPO, KueueBed, until
from tests.support.script_runner import BUSYBOX, pod, sh

DOCUMENTED = REPO / "scripts" / "lib" / "bed" / "job.yaml"
STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ")


def usage_of(bed: KueueBed, queue: str) -> int:
    """How many workloads hold quota of a queue's."""
    status = bed.get("clusterqueues.kueue.x-k8s.io", queue)["status"]
    found: int = status["reservingWorkloads"] + status["admittedWorkloads"]
    return found


def test_the_documented_job_runs_at_a_site(chain: KueueBed, user: User) -> None:
    user.create(yaml.safe_load(DOCUMENTED.read_text()))
    flavor = user.until_admitted("hello")
    pool = flavor.rpartition(".")[2]
    assert flavor == f"masterqueue.interlink.{pool}" and pool in ("host", "slurm")
    (found,) = until(lambda: user.pods_of("hello"), what="the job's pod")
    tolerated = {t["key"]: t.get("value") for t in found["spec"]["tolerations"]}
    assert tolerated["pool.vk.io"] == pool
    name = found["metadata"]["name"]
    until(lambda: user.log(name), what="its first line")
    said = user.kubectl("logs", "-f", "job/hello", seconds=120)
    assert re.fullmatch(r"hello from \S+\nbye\n", said)
    user.until_job("hello", "Complete")
    ended = user.pod(name)
    assert ended["spec"]["nodeName"] == VIRTUAL_NODE
    assert ended["status"]["phase"] == "Succeeded"
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (0, "Completed")
    assert user.log(name) == said
    until(lambda: usage_of(chain, "gr1") == 0, what="the quota to come back")
    jobs = chain.site(pool).home / "pool" / "jobs"
    assert f"{name[:24]}" in " ".join(path.name for path in jobs.iterdir())


PLACES = {
    "here": (REAL_NODE, []),
    "host": (VIRTUAL_NODE, goes_to("host")),
    "slurm": (VIRTUAL_NODE, goes_to("slurm")),
}


def placed(name: str, place: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod in one of the places."""
    node, tolerations = PLACES[place]
    spec.update(nodeSelector={"kubernetes.io/hostname": node}, tolerations=tolerations)
    return pod(container, name=name, **spec)


def talker(place: str) -> dict[str, Any]:
    """A pod that has to be started twice, and then waits, talks, waits and talks again."""
    script = "test -e /d/x || { >/d/x; echo first; exit 1; }; "
    script += "echo one; echo two; sleep 15; echo three; echo four >&2"
    container = sh(script, volumeMounts=[{"name": "d", "mountPath": "/d"}])
    volumes = [{"name": "d", "emptyDir": {}}]
    return placed(place, place, container, restartPolicy="OnFailure", volumes=volumes)


def test_logs_are_as_on_a_real_node_in_all_forms(user: User) -> None:
    user.create(*map(talker, PLACES))
    for name in PLACES:
        until(
            lambda name=name: shown(user, name)["restartCount"] == 1, 120, f"{name} to start again"
        )
        assert user.log(name, "--previous") == "first\n"
        first = shown(user, name)["lastState"]["terminated"]
        assert first["exitCode"] == 1
        # From the beginning to the end, although not all of it has been written.
        assert sorted(user.log(name, "--follow", seconds=120).split()) == sorted(
            ["one", "two", "three", "four"]
        )
    for name in PLACES:
        user.until_ended(name)
        if name != "here":  # a kubelet removes what has ended by and by
            assert user.log(name, "--previous") == "first\n"
        lines = user.log(name).splitlines()
        assert lines[:2] == ["one", "two"] and set(lines[2:]) == {"three", "four"}
        assert user.log(name, "--tail=2").splitlines() == lines[-2:]
        assert user.log(name, "--limit-bytes=5") == "one\nt"
        assert user.log(name, "--since=1h").splitlines() == lines
        stamped = user.log(name, "--timestamps").splitlines()
        assert all(STAMP.match(line) for line in stamped), (name, stamped)
        assert [STAMP.sub("", line, count=1) for line in stamped] == lines
        later = stamped[2].split()[0][:19]
        assert set(user.log(name, f"--since-time={later}Z").split()) >= {"three", "four"}
        assert "one" not in user.log(name, f"--since-time={later}Z")


def shown(user: User, name: str) -> dict[str, Any]:
    """The status of a pod's first container."""
    unknown = {"state": {}, "ready": False, "restartCount": 0}
    found: dict[str, Any] = (user.pod(name)["status"].get("containerStatuses") or [unknown])[0]
    return found


def test_init_containers_are_seen_one_after_the_other(chain: KueueBed, user: User) -> None:
    inits = [{"name": name, "image": BUSYBOX, **sh(HELD)} for name in ("i1", "i2")]
    user.create(*(placed(place, place, sh(HELD), initContainers=inits) for place in PLACES))
    for container, wanted in (
        ("i1", "Pending: running waiting waiting"),
        ("i2", "Pending: terminated running waiting"),
        ("c0", "Running: terminated terminated running"),
    ):
        for place in PLACES:
            until_shown(user, place, wanted)
        let_all_go(chain, user, container)
    for place in PLACES:
        until_shown(user, place, "Succeeded: terminated terminated terminated")


def let_all_go(chain: KueueBed, user: User, container: str = "c0") -> None:
    """Have a container that is held go on, in each place."""
    inside = ("--namespace", user.name, "here", "--container", container)
    chain.kubectl("exec", *inside, "--", "touch", "/tmp/go")
    for site in SITES:
        let_go(chain, site, user, site)


def test_readiness_is_shown_and_changes_nothing_else(chain: KueueBed, user: User) -> None:
    probe = {"exec": {"command": ["test", "-e", "/tmp/go"]}, "periodSeconds": 1}
    stays = sh(f"{HELD}; sleep 600", readinessProbe={**probe, "timeoutSeconds": 20})
    user.create(*(placed(place, place, stays, terminationGracePeriodSeconds=1) for place in PLACES))
    until_shown(user, "here", "Running: running")
    for site in SITES:
        # interLink takes all that runs for ready (docs/limits.md).
        until(lambda site=site: "NotReady" in str(shown(user, site)), what=f"{site}: NotReady")
    assert not any(shown(user, place)["ready"] for place in PLACES)
    let_all_go(chain, user)
    for place in PLACES:
        until(lambda place=place: shown(user, place)["ready"], what=f"{place} to be ready")
        until_shown(user, place, "Running: running")


def test_annotations_of_interlinks_plugins_hold_at_sites(chain: KueueBed, user: User) -> None:
    for site in SITES:
        mark = f"{user.name}-{site}"
        script = f'echo "$GIVEN"; cd /extra; cat {mark}; test "$(grep -c start {mark})" = 2'
        manifest = placed(site, site, sh(script), restartPolicy="OnFailure")
        manifest["metadata"]["annotations"] = {
            "slurm-job.vk.io/pre-exec": f"export WHO=pre-exec; echo $WHO >{DATA}/{mark}",
            "slurm-job.vk.io/singularity-commands": f"echo start after $WHO >>{DATA}/{mark}",
            "slurm-job.knoc.io/singularity-mounts": f"--bind {DATA}:/extra:ro",
            "job.vk.io/singularity-options": "--env GIVEN=option",
            "job.vk.io/image-root": "docker://docker.io/library/",
        }
        user.create(manifest)
    start = "start after pre-exec"
    for site in SITES:
        assert user.until_ended(site)["status"]["phase"] == "Succeeded"
        assert user.log(site).splitlines() == ["option", "pre-exec", start, start]


def until_shown(user: User, name: str, wanted: str) -> None:
    """Wait for a phase of a pod and the states of its containers, init containers first."""

    def look() -> bool:
        status = user.pod(name)["status"]
        every = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
        states = [next(iter(found["state"])) for found in every]
        return f"{status['phase']}: {' '.join(states)}" == wanted

    until(look, 90, f"{name}: {wanted}")
