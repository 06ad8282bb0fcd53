"""A user's job, from kubectl to a site and back."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.e2e.users import REAL_NODE, VIRTUAL_NODE, User, goes_to
from tests.kueue_bed import REPO, KueueBed, until
from tests.site import pod, sh

DOCUMENTED = REPO / "scripts" / "lib" / "bed_job.yaml"
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
    assert {"key": "pool.vk.io", "value": pool, "effect": "NoSchedule"} in (
        found["spec"]["tolerations"]
    )
    name = found["metadata"]["name"]
    user.until_phase(name, "Running")
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


def talker(name: str, node: str, tolerations: list[Any]) -> dict[str, Any]:
    """A pod that talks, waits, talks again, and has to be started twice."""
    script = (
        "echo one; echo two; sleep 4; echo three; echo four >&2; test -e /d/x || { >/d/x; exit 1; }"
    )
    container = sh(script, volumeMounts=[{"name": "d", "mountPath": "/d"}])
    return pod(
        container,
        name=name,
        restartPolicy="OnFailure",
        nodeSelector={"kubernetes.io/hostname": node},
        tolerations=tolerations,
        volumes=[{"name": "d", "emptyDir": {}}],
    )


def test_logs_are_as_on_a_real_node_in_all_forms(user: User) -> None:
    places = {"here": (REAL_NODE, []), "host": (VIRTUAL_NODE, goes_to("host"))}
    places["slurm"] = (VIRTUAL_NODE, goes_to("slurm"))
    user.create(*(talker(name, *place) for name, place in places.items()))
    for name in places:
        user.until_ended(name)
    lines = ["one", "two", "three", "four"]
    for name in places:
        assert sorted(user.log(name).splitlines()) == sorted(lines), name
        assert user.log(name, "--tail=2").splitlines() == user.log(name).splitlines()[-2:]
        assert user.log(name, "--limit-bytes=5") == user.log(name)[:5]
        assert user.log(name, "--since=1h") == user.log(name)
        assert user.log(name, "--previous").splitlines()[:2] == lines[:2]
        assert user.log(name, "--follow") == user.log(name)
        stamped = user.log(name, "--timestamps").splitlines()
        assert [STAMP.sub("", line, 1) for line in stamped] == user.log(name).splitlines()
        assert all(STAMP.match(line) for line in stamped), (name, stamped)
        later = stamped[1].split()[0]
        assert "three" in user.log(name, f"--since-time={later[:19]}Z")
    restarts = {name: user.pod(name)["status"]["containerStatuses"][0] for name in places}
    assert {name: status["restartCount"] for name, status in restarts.items()} == dict.fromkeys(
        places, 1
    )
