"""What goes wrong, as kubectl shows it to the user, and what is left of it at the sites."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, Optional

import pytest

from tests.e2e.conftest import SITES
from tests.e2e.sites import DATA, HELD, directories, full, let_go, uid_of
from tests.e2e.users import VIRTUAL_NODE, User, goes_to
from tests.support.kueue_bed import KueueBed, until
from tests.support.script_runner import pod, sh

Json = dict[str, Any]
FOR_EVER = "sleep 600"


def at(site: str, name: str, *containers: Json, flags: str = "", **spec: Any) -> Json:
    """A pod that runs at a site; ``flags`` are Slurm's."""
    spec.setdefault("terminationGracePeriodSeconds", 1)
    place = {"nodeSelector": {"kubernetes.io/hostname": VIRTUAL_NODE}, "tolerations": goes_to(site)}
    found = pod(*containers, name=name, **place, **spec)
    if flags:
        found["metadata"]["annotations"] = {"slurm-job.vk.io/flags": flags}
    return found


def at_all(user: User, name: str, *containers: Json, **spec: Any) -> dict[str, str]:
    """Such a pod at each site: the names of the pods."""
    names = {site: f"{name}-{site}" for site in SITES}
    user.create(*(at(site, found, *containers, **spec) for site, found in names.items()))
    return names


def end_of(found: Json) -> Json:
    state: Json = found["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


def until_nothing_is_left(chain: KueueBed, uids: dict[str, str]) -> None:
    """Wait until sites know nothing of pods any more."""
    for site, uid in uids.items():
        until(lambda site=site, uid=uid: not directories(chain, site, uid), 90, f"{uid} to go")


# --- what takes long: all of it at once -----------------------------------------------------------

GROWS = """BEGIN { for (; n < 64; n++) a[n] = sprintf("%1048576s", "") n; system("sleep 60") }"""
ASKS_FOR_ETC = {"name": "v", "hostPath": {"path": "/etc"}}


@pytest.fixture(scope="module")
def failing(chain: KueueBed) -> Iterator[User]:
    """Somebody whose pods all fail, each for another reason."""
    user = User(chain, f"fail-{uuid.uuid4().hex[:6]}")
    at_all(user, "image", sh("true", image="busybox:nowhere"))
    limits = {"limits": {"memory": "32Mi"}}
    at_all(user, "memory", {"command": ["awk", GROWS], "resources": limits})
    at_all(user, "deadline", sh(FOR_EVER), activeDeadlineSeconds=40)
    at_all(user, "program", {"command": ["/no/such/program"]})
    mounts = [{"name": "v", "mountPath": "/v"}]
    at_all(user, "refused", sh("true", volumeMounts=mounts), volumes=[ASKS_FOR_ETC])
    nowhere = at("host", "no-pool", sh("true"))
    nowhere["spec"]["tolerations"] = goes_to("host")[:1]
    user.create(
        nowhere,
        at("unheard-of", "strange-pool", sh("true")),
        at("no.pool", "wrong-pool", sh("true")),
        at("slurm", "limit-slurm", sh(FOR_EVER), flags="--time=1"),
    )
    yield user
    user.go()


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("image", 125, "busybox:nowhere"),
        ("image", 125, "manifest unknown"),
        ("memory", 137, "OOMKilled"),
        ("deadline", 143, "DeadlineExceeded: the pod was active on the node longer"),
        ("program", 255, "Error: 255"),
        ("limit", 143, "TimeLimit: Slurm: TIMEOUT"),
    ],
)
def test_describe_says_why_a_pod_has_failed(
    failing: User, name: str, code: int, words: str
) -> None:
    for site in SITES if name != "limit" else ("slurm",):
        found = failing.until_ended(f"{name}-{site}", 240)
        assert (found["status"]["phase"], end_of(found)["exitCode"]) == ("Failed", code)
        assert words in failing.kubectl("describe", "pod", f"{name}-{site}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("refused-host", "/etc is not allowed at this site"),
        ("refused-slurm", "/etc is not allowed at this site"),
        ("no-pool", "the pod names no pool"),
        ("strange-pool", "unheard-of"),
        ("wrong-pool", "toleration pool.vk.io: "),
    ],
)
def test_describe_says_why_a_pod_was_refused(failing: User, name: str, words: str) -> None:
    assert failing.until_ended(name, 60)["status"]["phase"] == "Failed"
    assert words in failing.kubectl("describe", "pod", name)


# --- deleted --------------------------------------------------------------------------------------


def test_pods_that_are_deleted_while_they_run(chain: KueueBed, user: User) -> None:
    script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"
    names = at_all(user, "gone", sh(script), terminationGracePeriodSeconds=20)
    for name in names.values():
        user.until_phase(name, "Running")
        until(lambda name=name: user.log(name) == "up\n", 30, "its first line")
    uids = {site: uid_of(user, name) for site, name in names.items()}
    user.kubectl("delete", "pod", *names.values(), seconds=90)
    until_nothing_is_left(chain, uids)
    assert "NotFound" in user.complaint("get", "pod", *names.values())


def test_pods_that_are_deleted_by_force(chain: KueueBed, user: User) -> None:
    names = at_all(user, "forced", sh(FOR_EVER))
    for name in names.values():
        user.until_phase(name, "Running")
    uids = {site: uid_of(user, name) for site, name in names.items()}
    user.kubectl("delete", "pod", *names.values(), "--force", "--grace-period=0")
    until_nothing_is_left(chain, uids)


def test_a_pod_that_is_deleted_while_it_waits_at_slurm(chain: KueueBed, user: User) -> None:
    site = chain.site("slurm")

    def why() -> Optional[str]:
        statuses = user.pod("queued")["status"].get("containerStatuses") or [{"state": {}}]
        found: Optional[str] = statuses[0]["state"].get("waiting", {}).get("message")
        return found

    with full(site):
        user.create(at("slurm", "queued", sh("true")))
        until(lambda: "Slurm: " in (why() or ""), 60, "why it waits")
        assert "PENDING queued-" in site.login("squeue", "-h", "-o", "%T %j")
        uid = uid_of(user, "queued")
        user.kubectl("delete", "pod", "queued", seconds=90)
        until_nothing_is_left(chain, {"slurm": uid})
        assert "queued-" not in site.login("squeue", "-h", "-o", "%j")


def test_a_namespace_that_is_deleted(chain: KueueBed, user: User) -> None:
    other = User(chain, f"{user.name}-gone")
    names = [at_all(other, f"p{number}", sh(FOR_EVER)) for number in range(3)]
    for found in names:
        for name in found.values():
            other.until_phase(name, "Running")
    uids = [{site: uid_of(other, name) for site, name in found.items()} for found in names]
    other.leave()
    for found in uids:
        until_nothing_is_left(chain, found)


# --- something else fails -------------------------------------------------------------------------


def test_a_virtual_kubelet_that_starts_again_in_the_middle(chain: KueueBed, user: User) -> None:
    names = at_all(user, "through", sh(f"echo begun; {HELD}; echo ended"))
    for name in names.values():
        user.until_phase(name, "Running")
    chain.kill("virtual-kubelet")
    chain.start("virtual-kubelet")
    # An end that comes sooner it may not write down (docs/limits.md).
    user.create(at("host", "next", sh("true")))
    user.until_ended("next")
    for site, name in names.items():
        let_go(chain, site, user, name)
    for site, name in names.items():
        assert user.until_ended(name)["status"]["phase"] == "Succeeded"
        assert user.log(name) == "begun\nended\n"
        assert len(directories(chain, site, uid_of(user, name))) == 1


def test_a_site_that_is_away_when_its_pod_ends(chain: KueueBed, user: User) -> None:
    user.create(at("host", "alone", sh(f"echo begun; {HELD}; echo ended; exit 4")))
    user.until_phase("alone", "Running")
    (directory,) = directories(chain, "host", uid_of(user, "alone"))
    site = chain.site("host")
    site.unplug("outside")
    try:
        let_go(chain, "host", user, "alone")
        log = directory / "logs" / "c0.0.log"
        until(lambda: "ended" in log.read_text(), 60, "its end at the site")
        assert user.pod("alone")["status"]["phase"] == "Running"
    finally:
        site.plug("outside")
    assert end_of(user.until_ended("alone"))["exitCode"] == 4
    assert user.log("alone") == "begun\nended\n"


def test_a_site_that_is_away_when_its_pod_comes(chain: KueueBed, user: User) -> None:
    site = chain.site("host")
    marks = sh(f"echo >{DATA}/{user.name}", volumeMounts=[{"name": "d", "mountPath": DATA}])
    volumes = [{"name": "d", "hostPath": {"path": DATA}}]
    site.unplug("outside")
    try:
        user.create(at("host", "too-late", marks, volumes=volumes))
        assert user.until_ended("too-late", 180)["status"]["phase"] == "Failed"
    finally:
        site.plug("outside")
    told = user.kubectl("describe", "pod", "too-late")
    assert "nothing was submitted: pool host: its submitter does not answer, waited 60 s" in told
    user.create(at("host", "next", sh("true")))
    assert user.until_ended("next")["status"]["phase"] == "Succeeded"
    until_nothing_is_left(chain, {"host": uid_of(user, "too-late")})
    assert not (site.home / "data" / user.name).exists()


def test_a_pod_whose_place_another_job_takes(chain: KueueBed, user: User) -> None:
    site = chain.site("slurm")
    user.create(at("slurm", "victim", sh(FOR_EVER), flags="--nodelist=n1 --no-requeue"))
    user.until_phase("victim", "Running")
    job = site.submit("true", "--partition=urgent", "--nodelist=n1", "--exclusive")
    assert end_of(user.until_ended("victim"))["exitCode"] == 143
    told = user.kubectl("describe", "pod", "victim")
    assert "Preempted: Slurm: PREEMPTED" in told
    assert "a job that comes first took its place" in told
    site.until(job, "COMPLETED")


# --- Jobs -----------------------------------------------------------------------------------------


def test_a_job_of_twenty_pods_of_which_one_fails(user: User) -> None:
    user.job(
        "many",
        'echo "$JOB_COMPLETION_INDEX"; test "$JOB_COMPLETION_INDEX" != 13',
        parallelism=20,
        completions=20,
        completionMode="Indexed",
        backoffLimitPerIndex=0,
        backoffLimit=None,
    )
    found = user.until_job("many", "Failed", 240)
    assert found["status"]["succeeded"] == 19
    assert found["status"]["failedIndexes"] == "13"
    said = [user.log(pod["metadata"]["name"]) for pod in user.pods_of("many")]
    assert sorted(said, key=int) == [f"{number}\n" for number in range(20)]


def test_a_job_that_is_tried_again(user: User) -> None:
    user.job("again", "echo try; exit 9", backoffLimit=1)
    found = user.until_job("again", "Failed", 240)
    reasons = [c["reason"] for c in found["status"]["conditions"] if c["type"] == "Failed"]
    assert reasons == ["BackoffLimitExceeded"]
    assert [end_of(found)["exitCode"] for found in user.pods_of("again")] == [9, 9]


def test_a_job_whose_time_is_over(chain: KueueBed, user: User) -> None:
    user.job("late", FOR_EVER, activeDeadlineSeconds=40)
    pool = user.until_admitted("late").rpartition(".")[2]
    (found,) = until(lambda: user.pods_of("late"))
    late = user.until_job("late", "Failed")
    reasons = [c["reason"] for c in late["status"]["conditions"] if c["type"] == "Failed"]
    assert reasons == ["DeadlineExceeded"]
    until(lambda: not user.pods_of("late"), 60, "its pod to be gone")
    until_nothing_is_left(chain, {pool: found["metadata"]["uid"]})


def test_a_job_that_is_cleaned_away_when_it_has_ended(chain: KueueBed, user: User) -> None:
    user.job("short", "true", ttlSecondsAfterFinished=5)
    pool = user.until_admitted("short").rpartition(".")[2]
    (found,) = until(lambda: user.pods_of("short"))
    until(lambda: not user.pods_of("short"), 120, "its pod to be gone")
    assert "NotFound" in user.complaint("get", "job", "short")
    until_nothing_is_left(chain, {pool: found["metadata"]["uid"]})
