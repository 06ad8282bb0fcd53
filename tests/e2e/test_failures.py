"""What goes wrong, as kubectl shows it to the user, and what is left of it at the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import SITES
from tests.e2e.users import VIRTUAL_NODE, User, goes_to
from tests.kueue_bed import KueueBed, until
from tests.site import pod, sh

Json = dict[str, Any]
every_site = pytest.mark.parametrize("site", SITES)


def at(site: str, name: str, *containers: Json, **spec: Any) -> Json:
    """A pod that runs at a site."""
    spec.setdefault("terminationGracePeriodSeconds", 1)
    place = {"nodeSelector": {"kubernetes.io/hostname": VIRTUAL_NODE}, "tolerations": goes_to(site)}
    return pod(*containers, name=name, **place, **spec)


def jobs_at(chain: KueueBed, site: str, name: str) -> list[Path]:
    """The directories that a pod has at a site."""
    return list((chain.site(site).home / "pool" / "jobs").glob(f"{name}-*"))


def end_of(found: Json, container: int = 0) -> Json:
    state: Json = found["status"]["containerStatuses"][container]["state"]["terminated"]
    return state


@every_site
def test_an_image_that_is_nowhere(user: User, site: str) -> None:
    user.create(at(site, "lost", sh("true", image="busybox:nowhere")))

    def waits() -> bool:
        statuses = user.pod("lost")["status"].get("containerStatuses") or ()
        reasons = [s["state"].get("waiting", {}).get("reason") for s in statuses]
        return bool(reasons) and reasons[0] in ("ErrImagePull", "ImagePullBackOff")

    until(waits, 60, "ErrImagePull")
    found = user.until_ended("lost")
    assert found["status"]["phase"] == "Failed"
    assert end_of(found)["exitCode"] == 125
    told = user.kubectl("describe", "pod", "lost")
    assert "manifest unknown" in told and "busybox:nowhere" in told


@every_site
def test_a_pod_that_asks_for_what_the_site_does_not_give(user: User, site: str) -> None:
    volume = {"name": "v", "hostPath": {"path": "/etc"}}
    container = sh("true", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    user.create(at(site, "refused", container, volumes=[volume]))
    found = user.until_ended("refused")
    assert found["status"]["phase"] == "Failed"
    assert found["status"]["reason"] == "ProviderFailed"


def test_a_pod_that_names_no_pool(user: User) -> None:
    manifest = at("host", "nowhere", sh("true"))
    manifest["spec"]["tolerations"] = goes_to("host")[:1]
    user.create(manifest)
    assert user.until_ended("nowhere")["status"]["phase"] == "Failed"


@every_site
def test_a_pod_that_is_deleted_while_it_runs(chain: KueueBed, user: User, site: str) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    user.create(at(site, "gone", sh(script), terminationGracePeriodSeconds=20))
    user.until_phase("gone", "Running")
    until(lambda: user.log("gone") == "up\n", 30, "its first line")
    user.kubectl("delete", "pod", "gone", seconds=90)
    until(lambda: not jobs_at(chain, site, "gone"), 60, "nothing to be left at the site")
    assert "NotFound" in user.complaint("get", "pod", "gone")


@every_site
def test_a_pod_that_is_deleted_by_force(chain: KueueBed, user: User, site: str) -> None:
    user.create(at(site, "forced", sh("sleep 600")))
    user.until_phase("forced", "Running")
    user.kubectl("delete", "pod", "forced", "--force", "--grace-period=0")
    until(lambda: not jobs_at(chain, site, "forced"), 90, "nothing to be left at the site")


def test_a_job_that_is_deleted_while_it_waits_at_slurm(chain: KueueBed, user: User) -> None:
    site = chain.site("slurm")
    nodes = ",".join(site.nodes)
    site.admin("scontrol", "update", f"nodename={nodes}", "state=drain", "reason=test")
    try:
        user.create(at("slurm", "queued", sh("true")))
        until(lambda: site.login("squeue", "-h", "-o", "%T %j"), 60, "a job in Slurm's queue")
        assert "PENDING queued-" in site.login("squeue", "-h", "-o", "%T %j")

        def says_why() -> bool:
            statuses = user.pod("queued")["status"].get("containerStatuses") or ()
            return any(s["state"].get("waiting", {}).get("message") for s in statuses)

        until(says_why, 60, "why it waits")
        user.kubectl("delete", "pod", "queued", seconds=90)
        until(lambda: not site.login("squeue", "-h"), 60, "Slurm's queue to be empty")
        until(lambda: not jobs_at(chain, "slurm", "queued"), 60, "nothing to be left at the site")
    finally:
        site.admin("scontrol", "update", f"nodename={nodes}", "state=resume")


@every_site
def test_a_namespace_that_is_deleted(chain: KueueBed, user: User, site: str) -> None:
    other = User(chain, f"{user.name}-gone")
    for number in range(3):
        other.create(at(site, f"p{number}{user.name}", sh("sleep 600")))
    for number in range(3):
        other.until_phase(f"p{number}{user.name}", "Running")
    other.leave()
    for number in range(3):
        left = f"p{number}{user.name}"
        until(lambda left=left: not jobs_at(chain, site, left), 60, f"nothing to be left of {left}")


def test_a_virtual_kubelet_that_starts_again_in_the_middle(chain: KueueBed, user: User) -> None:
    script = "echo begun; sleep 20; echo ended"
    names = {site: f"through-{site}" for site in SITES}
    user.create(*(at(site, name, sh(script)) for site, name in names.items()))
    for name in names.values():
        user.until_phase(name, "Running")
    chain.kill("virtual-kubelet")
    chain.start("virtual-kubelet")
    for site, name in names.items():
        assert user.until_ended(name)["status"]["phase"] == "Succeeded"
        assert user.log(name) == "begun\nended\n"
        assert len(jobs_at(chain, site, name)) == 1


def test_a_job_of_twenty_pods_of_which_one_fails(user: User) -> None:
    script = 'echo "$JOB_COMPLETION_INDEX"; test "$JOB_COMPLETION_INDEX" != 13'
    user.job(
        "many",
        script,
        parallelism=20,
        completions=20,
        completionMode="Indexed",
        backoffLimitPerIndex=0,
        backoffLimit=None,
        maxFailedIndexes=5,
    )
    found = user.until_job("many", "Failed", 240)
    assert found["status"]["succeeded"] == 19
    assert found["status"]["failedIndexes"] == "13"
    said = {p["metadata"]["name"]: user.log(p["metadata"]["name"]) for p in user.pods_of("many")}
    assert sorted(said.values(), key=int) == [f"{number}\n" for number in range(20)]


def test_a_job_that_is_tried_again(user: User) -> None:
    user.job("again", "echo try; exit 9", backoffLimit=1)
    user.until_job("again", "Failed", 240)
    ended = [end_of(found)["exitCode"] for found in user.pods_of("again")]
    assert ended == [9, 9]


def test_a_job_whose_time_is_over(chain: KueueBed, user: User) -> None:
    user.job("late", "sleep 600", activeDeadlineSeconds=15)
    pool = user.until_admitted("late").rpartition(".")[2]
    (found,) = until(lambda: user.pods_of("late"))
    name = found["metadata"]["name"]
    late = user.until_job("late", "Failed")
    reasons = [c["reason"] for c in late["status"]["conditions"] if c["type"] == "Failed"]
    assert reasons == ["DeadlineExceeded"]
    until(lambda: not user.pods_of("late"), 60, "its pod to be gone")
    until(lambda: not jobs_at(chain, pool, name[:24]), 60, "nothing to be left at the site")


def test_a_job_that_is_cleaned_away_when_it_has_ended(chain: KueueBed, user: User) -> None:
    user.job("short", "true", ttlSecondsAfterFinished=5)
    pool = user.until_admitted("short").rpartition(".")[2]
    (found,) = until(lambda: user.pods_of("short"))
    until(lambda: not user.pods_of("short"), 120, "its pod to be gone")
    assert "NotFound" in user.complaint("get", "job", "short")
    until(lambda: not jobs_at(chain, pool, found["metadata"]["name"][:24]), 60, "nothing left")


def test_a_site_that_is_away_when_its_pod_ends(chain: KueueBed, user: User) -> None:
    user.create(at("host", "alone", sh("echo begun; sleep 10; echo ended; exit 4")))
    user.until_phase("alone", "Running")
    site = chain.site("host")
    site.unplug("outside")
    try:
        until(lambda: jobs_at(chain, "host", "alone"))
        records = jobs_at(chain, "host", "alone")[0]
        log = records / "logs" / "c0.0.log"
        until(lambda: "ended" in log.read_text(), 60, "its end at the site")
        assert user.pod("alone")["status"]["phase"] == "Running"
    finally:
        site.plug("outside")
    found = user.until_ended("alone")
    assert end_of(found)["exitCode"] == 4
    assert user.log("alone") == "begun\nended\n"
