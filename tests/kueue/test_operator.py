"""The operator, by what Kueue does with Jobs: admitted where, waiting why, and moved when."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kueue_operator import World

pytestmark = pytest.mark.both_kueues


def test_the_documented_manifest_admits_jobs_that_ask_for_cpu_and_memory(world: World) -> None:
    local = world.foreign_flavor("cpu")
    lends = [{"queue": f"{world.name}-group1", "lendingLimit": {"pods": 30}}]
    remote = {"name": "interlink", "natsFlavor": world.nats_flavor(riseAfter=10)}
    world.master(
        [
            {**remote, "nominalQuota": {"pods": 100}, "canLendTo": lends},
            {"name": local, "localFlavor": {}, "nominalQuota": {"pods": 100}, "canLendTo": lends},
        ]
    )
    world.pools.offer("slurm-a", cpu=4, memory="8Gi", pods=10)
    queue = world.local_queue(f"{world.name}-group1")
    world.until_pool("slurm-a", "Active")
    world.job("here", queue, remote=False)
    world.job("there", queue)
    world.until_admitted("here", local)  # without the toleration it never leaves
    world.until_admitted("there", world.flavor("slurm-a", "interlink"))
    pods = {
        pod["metadata"]["labels"]["job-name"]: pod["spec"]
        for pod in world.pools.until(lambda: _pods(world, 2), 60, "two pods")
    }
    assert pods["there"]["nodeSelector"] == {"kubernetes.io/hostname": "interlink"}
    pool = [t for t in pods["there"]["tolerations"] if t["key"] == "pool.vk.io"]
    assert [(t["value"], t["effect"]) for t in pool] == [("slurm-a", "NoSchedule")]
    done = ("wait", "--for=condition=Complete", "job/here", "--timeout=60s")
    world.bed.kubectl(*done, "--namespace", world.name, seconds=90)


def _pods(world: World, number: int) -> Any:
    """The pods of the test, once there are so many."""
    found = world.bed.get("pods", namespace=world.name)["items"]
    return found if len(found) == number else None


def test_jobs_overflow_from_pool_to_pool_within_limits_for_each(world: World) -> None:
    group = f"{world.name}-group1"
    lends = [{"queue": group, "lendingLimit": {"pods": 2}}]
    flavor = world.nats_flavor(pools=["zeta", "alpha"])
    world.master([{"name": "remote", "natsFlavor": flavor, "canLendTo": lends}])
    world.pools.offer("alpha", cpu=8, memory="8Gi", pods=10)
    world.pools.offer("zeta", cpu=8, memory="8Gi", pods=10)
    world.until_pool("alpha", "Active")
    world.until_pool("zeta", "Active")
    queue = world.local_queue(group)
    for number in range(5):
        world.job(f"job-{number}", queue)
    wanted = [world.flavor("alpha")] * 2 + [world.flavor("zeta")] * 2

    def admitted() -> list[str]:
        return sorted(filter(None, map(world.admitted_to, world.workloads())))

    world.pools.until(lambda: admitted() == wanted, 60, "two jobs on each pool")
    # As many as the list of pools prefers went to the first one.
    assert world.admitted_to("job-0") == world.flavor("zeta")
    waiting = next(job for job in world.workloads() if not world.admitted_to(job))
    assert "pods" in world.waits_because(waiting)
    used = world.pools.until(lambda: world.pool("zeta").get("lentTo"), 60, "what is lent")
    assert [(entry["queue"], entry["used"]["pods"]) for entry in used] == [(group, "2")]


def test_jobs_go_where_what_they_ask_for_is(world: World) -> None:
    world.master([{"name": "remote", "natsFlavor": world.nats_flavor(pools=["plain", "gpus"])}])
    world.pools.offer("plain", cpu=4, memory="8Gi", pods=10)
    world.pools.offer("gpus", cpu=4, memory="8Gi", pods=10, **{"nvidia.com/gpu": 1})
    world.until_pool("plain", "Active")
    world.until_pool("gpus", "Active")
    queue = world.local_queue(world.name)
    asks = {"cpu": "1", "memory": "64Mi", "nvidia.com/gpu": "1"}
    world.job("learns", queue, requests=asks, limits={"nvidia.com/gpu": "1"})
    world.until_admitted("learns", world.flavor("gpus"))
    world.job("queues", queue, requests=asks, limits={"nvidia.com/gpu": "1"})
    words = world.pools.until(lambda: world.waits_because("queues"), 60, "why it waits")
    assert "nvidia.com/gpu" in words
    world.job(
        "asks",
        queue,
        requests={"cpu": "100m", "example.org/licence": "1"},
        limits={"example.org/licence": "1"},
    )
    words = world.pools.until(lambda: world.waits_because("asks"), 60, "why it waits")
    assert "example.org/licence" in words
    world.pools.offer("plain", cpu=4, memory="8Gi", pods=10, **{"example.org/licence": 2})
    world.until_admitted("asks", world.flavor("plain"))


def test_without_a_connector_it_is_the_operators_own_server(world: World) -> None:
    world.master([{"name": "remote", "natsFlavor": world.nats_flavor(natsConnector="")}])
    world.pools.offer("site", cpu=4, memory="4Gi", pods=4)
    world.job("goes", world.local_queue(world.name))
    world.until_admitted("goes", world.flavor("site"))


def test_more_pools_than_kueue_has_room_for_are_named_and_the_others_work(world: World) -> None:
    names = [f"p{number:02}" for number in range(66)]
    world.master([{"name": "remote", "natsFlavor": world.nats_flavor(pools=names)}])
    for name in names:
        world.pools.offer(name, cpu=1, memory="1Gi", pods=1)
    told = world.until_pool("p65", "Unused")
    assert told["message"] == "a ClusterQueue holds 64 flavors: more need another MasterQueue"
    world.until_pool("p63", "Active")
    assert world.condition("Ready")["status"] == "True"
    world.job("goes", world.local_queue(world.name))
    world.until_admitted("goes", world.flavor("p00"))


def test_a_pool_that_falls_silent_leaves_and_comes_back(world: World) -> None:
    flavor = world.nats_flavor(pools=["gone", "stays"], poolTimeout=4)
    world.master([{"name": "remote", "natsFlavor": flavor}])
    world.pools.offer("gone", cpu=1, memory="1Gi", pods=1)
    world.pools.offer("stays", cpu=1, memory="1Gi", pods=1)
    world.until_pool("gone", "Active")
    queue = world.local_queue(world.name)
    world.job("runs", queue)
    world.until_admitted("runs", world.flavor("gone"))
    silent = world.pools.forget("gone")
    lost = world.until_pool("gone", "Lost")
    assert lost["message"] == "not heard of for 4 s (poolTimeout)"
    made = world.pools.until(
        lambda: (m := world.made_by(world.name)) and len(m) == 2 and m, 60, "its flavor's end"
    )
    assert f"ResourceFlavor/{world.flavor('stays')}" in made
    assert world.condition("PoolsHealthy")["reason"] == "PoolsLost"
    assert world.admitted_to("runs") == world.flavor("gone")  # it was left to run
    world.job("later", queue)
    world.until_admitted("later", world.flavor("stays"))
    world.pools.offer("gone", **silent)
    world.until_pool("gone", "Active")
    assert world.quota(world.name, world.flavor("gone"))["cpu"]["nominalQuota"] == "1"


def test_capacity_falls_at_once_and_rises_when_it_has_held(world: World) -> None:
    lends = [{"queue": f"{world.name}-team", "lendingLimit": {"pods": 30}}]
    flavor = world.nats_flavor(pools=["site"], riseAfter=8)
    world.master([{"name": "remote", "natsFlavor": flavor, "canLendTo": lends}])
    world.pools.offer("site", cpu=64, memory="64Gi", pods=40)
    world.until_pool("site", "Active")
    name = world.flavor("site")

    def cpu() -> str:
        return str(world.quota(world.name, name).get("cpu", {}).get("nominalQuota"))

    def borrowed() -> str:
        return str(world.quota(f"{world.name}-team", name)["pods"]["borrowingLimit"])

    world.pools.until(lambda: cpu() == "64", 60, "the whole quota")
    world.pools.until(lambda: borrowed() == "30", 30, "what may be borrowed")
    world.pools.offer("site", cpu=10, memory="64Gi", pods=10)
    world.pools.until(lambda: cpu() == "10", 30, "the fall")
    world.pools.until(lambda: borrowed() == "10", 30, "what may be borrowed then")
    world.pools.offer("site", cpu=100, memory="64Gi", pods=40)
    published = world.pools.until(
        lambda: (p := world.pool("site"))["published"]["cpu"] == "100" and p, 30, "the word of it"
    )
    if published["effective"]["cpu"] == "10":  # else this machine was very slow
        assert cpu() in ("10", "100")
    world.pools.until(lambda: cpu() == "100", 60, "the rise")


def test_without_any_pool_the_queue_is_active_and_says_so(world: World) -> None:
    world.master([{"name": "remote", "natsFlavor": world.nats_flavor()}])
    ready = world.pools.until(
        lambda: (c := world.condition("Ready")).get("status") == "True" and c, 60, "the queue"
    )
    assert ready["reason"] == "Reconciled"
    assert world.condition("PoolsHealthy")["message"] == "no pool has been heard of"
    assert not world.queue(world.name)["spec"].get("resourceGroups")
    active = [c for c in world.queue(world.name)["status"]["conditions"] if c["type"] == "Active"]
    assert [c["status"] for c in active] == ["True"]
    world.job("waits", world.local_queue(world.name))
    world.pools.until(lambda: world.waits_because("waits"), 60, "words for a waiting job")
    world.pools.offer("first", cpu=1, memory="1Gi", pods=1)
    world.until_admitted("waits", world.flavor("first"))


def test_a_drained_pool_admits_nothing_and_its_jobs_move_when_asked(world: World) -> None:
    flavors = [{"name": "remote", "natsFlavor": world.nats_flavor(pools=["old", "new"])}]
    world.master(flavors)
    world.pools.offer("old", cpu=4, memory="4Gi", pods=4)
    world.pools.offer("new", cpu=4, memory="4Gi", pods=4)
    world.until_pool("new", "Active")
    queue = world.local_queue(world.name)
    world.job("first", queue)
    world.until_admitted("first", world.flavor("old"))
    world.bed.kubectl("annotate", "masterqueue", world.name, "vk.io/drain=old")
    world.until_pool("old", "Draining")
    world.job("second", queue)
    world.until_admitted("second", world.flavor("new"))
    assert world.admitted_to("first") == world.flavor("old")
    assert world.pool("old")["used"]["pods"] == "1"
    world.master(flavors, drain=["old"], evictDrained=True)
    world.until_admitted("first", world.flavor("new"))
    annotations = world.workloads()["first"]["metadata"].get("annotations") or {}
    assert "vk.io/returned-from" not in annotations
    world.bed.kubectl("annotate", "masterqueue", world.name, "vk.io/drain-")
    world.master(flavors, drain=[])
    world.until_pool("old", "Active")
    world.job("third", queue)
    world.until_admitted("third", world.flavor("old"))


def test_what_waits_at_a_lost_pool_is_given_back(world: World) -> None:
    flavor = world.nats_flavor(pools=["dies", "lives"], poolTimeout=4, returnAfter=2)
    world.master([{"name": "remote", "natsFlavor": flavor}])
    world.pools.offer("dies", cpu=4, memory="4Gi", pods=4)
    world.pools.offer("lives", cpu=4, memory="4Gi", pods=4)
    world.until_pool("lives", "Active")
    queue = world.local_queue(world.name)
    world.job("stuck", queue)
    world.until_admitted("stuck", world.flavor("dies"))
    world.pools.forget("dies")
    world.until_admitted("stuck", world.flavor("lives"))


def test_what_has_started_at_a_lost_pool_is_left_to_run(world: World) -> None:
    (node,) = world.bed.get("nodes")["items"]  # in the place of a virtual one, so that pods start
    flavor = world.nats_flavor(
        pools=["dies", "lives"],
        poolTimeout=4,
        returnAfter=2,
        virtualNode=node["metadata"]["labels"]["kubernetes.io/hostname"],
    )
    world.master([{"name": "remote", "natsFlavor": flavor}])
    for pool in ("dies", "lives"):
        world.pools.offer(pool, cpu=4, memory="4Gi", pods=4)
        world.until_pool(pool, "Active")
    queue = world.local_queue(world.name)
    world.job("runs", queue, script="sleep 1000")
    world.job("waits", queue, image="example.org/never:1")
    for job in ("runs", "waits"):
        world.until_admitted(job, world.flavor("dies"))
    pods = world.pools.until(lambda: _phases(world, runs="Running", waits="Pending"), 60, "phases")
    world.pools.forget("dies")
    world.until_admitted("waits", world.flavor("lives"))
    assert world.admitted_to("runs") == world.flavor("dies")
    after = world.pools.until(lambda: _phases(world, runs="Running", waits="Pending"), 60, "phases")
    assert after["runs"] == pods["runs"]
    assert after["waits"] != pods["waits"]  # the old one was deleted: its site is told to cancel


def _phases(world: World, **wanted: str) -> Any:
    """The uids of the only pods of Jobs, by Job, once they are in these phases."""
    items = world.bed.get("pods", namespace=world.name)["items"]
    phases = {pod["metadata"]["labels"]["job-name"]: pod["status"]["phase"] for pod in items}
    if len(items) != len(phases) or phases != wanted:
        return None
    return {pod["metadata"]["labels"]["job-name"]: pod["metadata"]["uid"] for pod in items}


def test_what_is_not_ours_is_left_alone_and_named(world: World) -> None:
    queue = {
        "apiVersion": world.api,
        "kind": "ClusterQueue",
        "metadata": {"name": f"{world.name}-team"},
        "spec": {"namespaceSelector": {}},
    }
    flavor = {
        "apiVersion": world.api,
        "kind": "ResourceFlavor",
        "metadata": {"name": world.flavor("site")},
        "spec": {"nodeLabels": {"mine": "yes"}},
    }
    world.bed.apply(queue, flavor)
    remote = {"name": "remote", "natsFlavor": world.nats_flavor()}
    world.master([{**remote, "canLendTo": [{"queue": f"{world.name}-team"}]}])
    world.pools.offer("site", cpu=1, memory="1Gi", pods=1)
    world.pools.offer("other", cpu=1, memory="1Gi", pods=1)

    def named() -> bool:
        ready, others = (
            world.condition("Ready"),
            (f"ClusterQueue {world.name}-team", "ResourceFlavor"),
        )
        words = ready.get("message", "")
        return ready.get("reason") == "Conflict" and all(other in words for other in others)

    world.pools.until(named, 60, "the conflict")
    assert f"ResourceFlavor {world.flavor('site')}," in world.condition("Ready")["message"]
    assert world.queue(f"{world.name}-team")["spec"].get("resourceGroups") in (None, [])
    mine = world.bed.get("resourceflavors.kueue.x-k8s.io", world.flavor("site"))
    assert mine["spec"]["nodeLabels"] == {"mine": "yes"}
    world.job("goes", world.local_queue(world.name))
    world.until_admitted("goes", world.flavor("other"))
    world.bed.kubectl("delete", "clusterqueue", f"{world.name}-team")
    world.bed.kubectl("delete", "resourceflavor", world.flavor("site"))
    world.pools.until(lambda: world.condition("Ready")["status"] == "True", 60, "peace")


def test_what_a_master_queue_has_made_goes_with_it(world: World) -> None:
    remote = {"name": "remote", "natsFlavor": world.nats_flavor()}
    lends = [{"queue": f"{world.name}-{team}"} for team in ("one", "two")]
    world.master([{**remote, "canLendTo": lends}])
    world.pools.offer("site", cpu=4, memory="4Gi", pods=4)
    world.until_pool("site", "Active")
    assert len(world.made_by(world.name)) == 4
    queue = world.local_queue(f"{world.name}-one")
    world.job("runs", queue)
    world.until_admitted("runs", world.flavor("site"))
    world.master([{**remote, "canLendTo": lends[:1]}])  # a borrower that is not named any more
    world.pools.until(lambda: len(world.made_by(world.name)) == 3, 60, "the second borrower's end")
    world.bed.kubectl("delete", "masterqueue", world.name, "--wait=false")
    # The queue of the job that runs waits for its end.
    world.pools.until(lambda: len(world.made_by(world.name)) <= 2, 60, "the end of the others")
    assert world.workloads()["runs"]["status"]["admission"]
    world.bed.kubectl("delete", "job", "runs", "--namespace", world.name)
    world.pools.until(lambda: world.made_by(world.name) == [], 60, "the end of all")


def test_names_that_kubernetes_cannot_hold(world: World) -> None:
    world.master([{"name": "remote", "natsFlavor": world.nats_flavor()}])
    names = ("Pool_A", "pool-a", "-edge_")
    for name in names:
        world.pools.offer(name, cpu=1, memory="1Gi", pods=1)
    flavors = {name: world.until_pool(name, "Active")["resourceFlavor"] for name in names}
    assert len(set(flavors.values())) == 3
    queue = world.local_queue(world.name)
    for number in range(3):
        world.job(f"job-{number}", queue)
    tolerated = {"Pool_A", "pool-a", "p.-edge_.p"}

    def values() -> set[str]:
        pods = world.bed.get("pods", namespace=world.name)["items"]
        tolerations = [t for pod in pods for t in pod["spec"]["tolerations"]]
        return {t["value"] for t in tolerations if t["key"] == "pool.vk.io"}

    world.pools.until(lambda: values() == tolerated, 60, "a pod for each pool")


def test_a_stopped_queue_admits_nothing(world: World) -> None:
    flavors = [{"name": "remote", "natsFlavor": world.nats_flavor()}]
    world.master(flavors, template={"cohort": world.name, "stopPolicy": "Hold"})
    world.pools.offer("site", cpu=4, memory="4Gi", pods=4)
    world.until_pool("site", "Active")
    world.job("waits", world.local_queue(world.name))
    world.pools.until(
        lambda: (
            "stopped" in world.waits_because("waits").lower()
            or "inactive" in world.waits_because("waits").lower()
        ),
        60,
        "words for a waiting job",
    )
    assert world.condition("Ready")["status"] == "True"
    world.master(flavors)
    world.until_admitted("waits", world.flavor("site"))


def test_a_queue_takes_jobs_of_the_namespaces_that_it_is_for(world: World) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}
    flavors = [{"name": "remote", "natsFlavor": world.nats_flavor()}]
    world.master(flavors, template={"cohort": world.name, "namespaceSelector": selector})
    world.pools.offer("site", cpu=4, memory="4Gi", pods=4)
    world.until_pool("site", "Active")
    world.job("waits", world.local_queue(world.name))
    words = world.pools.until(lambda: world.waits_because("waits"), 60, "why it waits")
    assert "namespace" in words
    world.master(flavors)
    world.until_admitted("waits", world.flavor("site"))


def test_a_check_that_is_not_there_is_told_in_kueues_words(world: World) -> None:
    flavors = [{"name": "remote", "natsFlavor": world.nats_flavor()}]
    world.master(flavors, template={"cohort": world.name, "admissionChecks": ["nowhere"]})
    world.pools.offer("site", cpu=4, memory="4Gi", pods=4)
    ready = world.pools.until(
        lambda: (c := world.condition("Ready")).get("reason") == "QueueInactive" and c, 60, "words"
    )
    assert "nowhere" in ready["message"]
    world.master(flavors)
    world.job("goes", world.local_queue(world.name))
    world.until_admitted("goes", world.flavor("site"))
    world.pools.until(lambda: world.condition("Ready")["status"] == "True", 60, "peace")


def test_the_rest_of_the_template_reaches_every_queue(world: World) -> None:
    template = {
        "cohort": world.name,
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "queueingStrategy": "StrictFIFO",
        "namespaceSelector": {"matchLabels": {"team": "physics"}},
        "fairSharing": {"weight": "2"},
    }
    remote = {"name": "remote", "natsFlavor": world.nats_flavor(), "borrowingLimit": {"cpu": 2}}
    lends = [{"queue": f"{world.name}-team"}]
    world.master([{**remote, "canLendTo": lends}], template=template)
    world.pools.offer("site", cpu=4, memory="4Gi", pods=4)
    world.until_pool("site", "Active")
    for name in (world.name, f"{world.name}-team"):
        spec = world.queue(name)["spec"]
        assert spec["queueingStrategy"] == "StrictFIFO"
        assert spec["namespaceSelector"] == {"matchLabels": {"team": "physics"}}
        assert spec["preemption"]["reclaimWithinCohort"] == "Any"
        assert spec["preemption"]["withinClusterQueue"] == "LowerPriority"
        assert spec["flavorFungibility"]["whenCanPreempt"] == "TryNextFlavor"
        assert spec["flavorFungibility"]["whenCanBorrow"] in ("Borrow", "MayStopSearch")
        assert spec["fairSharing"]["weight"] == "2"
    assert world.quota(world.name, world.flavor("site"))["cpu"]["borrowingLimit"] == "2"
    world.master([{**remote, "canLendTo": lends}])  # what is asked no more goes again
    world.pools.until(
        lambda: world.queue(world.name)["spec"]["preemption"]["reclaimWithinCohort"] == "Never",
        60,
        "Kueue's own defaults",
    )
    assert world.queue(world.name)["spec"]["queueingStrategy"] == "BestEffortFIFO"


def test_two_master_queues_that_share_a_pool_are_warned(world: World) -> None:
    flavors = [{"name": "remote", "natsFlavor": world.nats_flavor()}]
    one, two = world.master(flavors, "-one"), world.master(flavors, "-two")
    world.pools.offer("site", cpu=4, memory="4Gi", pods=4)
    words = f"MasterQueues {one} and {two} together count more than it offers of"
    for name in (one, two):
        world.until_pool("site", "Active", name)
        world.pools.until(
            lambda n=name: words in world.pool("site", n).get("message", ""), 60, "a warning"
        )
        assert world.condition("PoolsHealthy", name)["reason"] == "Warning"
    world.master([{**flavors[0], "nominalQuota": {"cpu": 2, "memory": "2Gi", "pods": 2}}], "-one")
    world.master([{**flavors[0], "nominalQuota": {"cpu": 2, "memory": "2Gi", "pods": 2}}], "-two")
    world.pools.until(
        lambda: world.condition("PoolsHealthy", two)["status"] == "True", 60, "no warning"
    )
