"""The operator's own life: restarts, several of them, secrets, what it writes at rest, and once."""

from __future__ import annotations

import base64
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kueue_bed import KueueBed, until
from tests.support.kueue_operator import NAMESPACE, PASSWORD, USER, Operator, Watch, World
from tests.support.nats_server import NatsServer
from tests.unit.submitter.rig import POOL, Submitter


def versions(world: World) -> dict[str, str]:
    """Every object of ours, and its version, which changes with each write."""
    names = world.made_by(world.name)
    return {
        name: world.bed.get(f"{name.lower()}")["metadata"]["resourceVersion"]
        for name in sorted(names)
    }


def spec_of(world: World) -> dict[str, Any]:
    return {name: world.bed.get(name.lower())["spec"] for name in world.made_by(world.name)}


def settled(world: World) -> dict[str, Any]:
    """The specs of what is there, once two pools are in the queues."""
    flavors = [world.flavor(pool) for pool in ("one", "two")]
    world.pools.until(
        lambda: all(world.quota(world.name, flavor) for flavor in flavors), 60, "both pools"
    )
    return spec_of(world)


@pytest.fixture
def two_pools(world: World) -> World:
    flavor = world.nats_flavor(poolTimeout=20)
    lends = [{"queue": f"{world.name}-team", "lendingLimit": {"pods": 2}}]
    world.master([{"name": "remote", "natsFlavor": flavor, "canLendTo": lends}])
    world.pools.offer("one", cpu=4, memory="4Gi", pods=4)
    world.pools.offer("two", cpu=4, memory="4Gi", pods=4)
    settled(world)
    return world


def test_a_restart_changes_nothing(two_pools: World) -> None:
    world, operator = two_pools, two_pools.operator
    world.until_pool("two", "Active")
    before = versions(world)
    for number in (signal.SIGKILL, signal.SIGTERM):
        operator.stop(number)
        operator.start().until_up()
        # Not a word of any pool: what is there stays until their timeouts have passed.
        until(lambda: operator.metric('kueue_nats_rounds_total{outcome="done"}') >= 2, 60)
        assert versions(world) == before
    world.pools.publish()
    until(lambda: operator.metric('kueue_nats_rounds_total{outcome="done"}') >= 5, 60)
    assert versions(world) == before
    world.pools.forget("two")
    world.until_pool("two", "Lost")


def test_at_rest_nothing_is_written_but_a_status_a_minute(two_pools: World) -> None:
    world, operator = two_pools, two_pools.operator
    world.until_pool("two", "Active")
    before, writes = versions(world), operator.metric("kueue_nats_writes_total")
    rounds = operator.metric('kueue_nats_rounds_total{outcome="done"}')
    world.pools.until(
        lambda: operator.metric('kueue_nats_rounds_total{outcome="done"}') >= rounds + 20, 90
    )
    assert versions(world) == before
    masters = len(world.bed.get("masterqueues.vk.io")["items"])
    assert operator.metric("kueue_nats_writes_total") - writes <= 2 * masters


def test_one_of_two_operators_leads_and_the_other_takes_over(
    two_pools: World, tmp_path: Path
) -> None:
    world, first = two_pools, two_pools.operator
    config = yaml.safe_load(first.config.read_text())
    second = Operator(tmp_path, Path(config["kubeconfig"])).start().until_up()
    try:
        assert second.metric("kueue_nats_leads") == 0
        first.stop(signal.SIGKILL)
        until(lambda: second.metric("kueue_nats_leads") == 1, 60, "the second one to lead")
        first.start().until_up()
        world.pools.offer("one", cpu=2, memory="4Gi", pods=4)
        flavor = world.flavor("one")
        world.pools.until(
            lambda: world.quota(world.name, flavor)["cpu"]["nominalQuota"] == "2", 60, "a change"
        )
        assert first.metric("kueue_nats_leads") == 0
    finally:
        assert second.stop() == 0
    # The lease was given back: nobody has to wait until it runs out.
    until(lambda: first.metric("kueue_nats_leads") == 1, 4, "the first one to lead again")
    assert "Traceback" not in second.words()


def test_once_does_all_there_is_to_do(world: World) -> None:
    world.operator.stop()
    try:
        world.master([{"name": "remote", "natsFlavor": world.nats_flavor()}])
        world.pools.offer("site", cpu=4, memory="4Gi", pods=4)
        world.pools.answers = True
        done = world.operator.run("--once")
        assert done.returncode == 0, done.stderr
        assert world.quota(world.name, world.flavor("site"))["cpu"]["nominalQuota"] == "4"
        assert world.pool("site")["state"] == "Active"
        assert world.condition("Ready")["status"] == "True"
        world.pools.offer("site", cpu=3, memory="4Gi", pods=4)
        assert world.operator.run("--once").returncode == 0
        assert world.quota(world.name, world.flavor("site"))["cpu"]["nominalQuota"] == "3"
        # Nobody has listened since then, for longer than the timeout: that is how cron is.
        world.master([{"name": "remote", "natsFlavor": world.nats_flavor(poolTimeout=6)}])
        before = versions(world)
        time.sleep(6.1)
        assert world.operator.run("--once").returncode == 0
        assert versions(world) == before
        world.pools.forget("site")
        time.sleep(6.1)
        assert world.operator.run("--once").returncode == 0
        assert world.made_by(world.name) == [f"ClusterQueue/{world.name}"]
    finally:
        world.operator.start()


def test_a_password_comes_from_a_secret_and_goes_nowhere_else(
    world: World, nats: NatsServer
) -> None:
    def secret(value: str) -> None:
        data = {"nats": base64.b64encode(value.encode()).decode()}
        metadata = {"name": world.name, "namespace": NAMESPACE}
        world.bed.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    ref = {"name": world.name, "key": "nats"}
    connector = f"nats://{USER}@127.0.0.1:{nats.port}"
    flavor = world.nats_flavor(natsConnector=connector, natsConnectorSecretRef=ref)
    world.master([{"name": "remote", "natsFlavor": flavor}])
    world.pools.offer("site", cpu=4, memory="4Gi", pods=4)
    words = world.pools.until(
        lambda: (
            (c := world.condition("NATSConnected")).get("status") == "False"
            and "Secret" in c["message"]
            and c["message"]
        ),
        60,
        "words for a Secret that is not there",
    )
    assert f"Secret {NAMESPACE}/{world.name}" in words
    wrong = "wr0ng-passw0rd"
    secret(wrong)
    world.pools.until(
        lambda: "uthorization" in world.condition("NATSConnected")["message"], 60, "a refusal"
    )
    secret(PASSWORD)
    world.until_pool("site", "Active")
    secret(world.url)  # or the whole connector
    world.pools.until(
        lambda: world.condition("NATSConnected")["status"] == "True", 60, "the connection"
    )
    told = world.operator.words() + json.dumps(world.bed.get("mq", world.name))
    told += world.bed.kubectl("get", "events", "--output=yaml")
    for hidden in (wrong, PASSWORD, "pass%2Fword"):
        assert hidden not in told


def test_who_speaks_too_rarely_is_named_in_the_status(
    world: World, nats: NatsServer, tmp_path: Path
) -> None:
    world.master([{"name": "remote", "natsFlavor": world.nats_flavor(poolTimeout=30)}])
    world.pools.until(lambda: world.condition("NATSConnected").get("status") == "True", 60)
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    submitter = Submitter(nats, tmp_path, timing={"resources_s": 60})
    config = json.loads(submitter.config.read_text())
    config["nats"].update(user=USER, password_file=str(password), root=world.pools.root)
    submitter.config.write_text(json.dumps(config))
    submitter.start()
    try:
        told = world.until_pool(POOL, "Active")
        assert "speaks every 60 s only, and poolTimeout is 30 s" in told["message"]
        assert world.condition("PoolsHealthy")["reason"] == "Warning"
        assert {"cpu", "memory", "pods"} <= told["published"].keys()
    finally:
        submitter.stop()


def test_a_plan_is_compared_with_the_cluster(two_pools: World, tmp_path: Path) -> None:
    world = two_pools
    manifest, resources = tmp_path / "mq.yaml", tmp_path / "resources.yaml"
    manifest.write_text(yaml.safe_dump(world.bed.get("mq", world.name)))
    quotas = {"cpu": "4", "memory": "4Gi", "pods": "4"}
    resources.write_text(yaml.safe_dump({"one": quotas, "two": quotas}))
    command = ("plan", "-f", str(manifest), "--resources", str(resources), "--diff")
    same = world.operator.run(*command)
    assert (same.returncode, same.stdout) == (0, ""), same.stderr
    resources.write_text(yaml.safe_dump({"one": {**quotas, "cpu": "5"}}))
    other = world.operator.run(*command)
    assert other.returncode == 1, other.stderr
    lines = [line.split() for line in other.stdout.splitlines()]
    assert ["-", "nominalQuota:", "'4'"] in lines
    assert ["+", "nominalQuota:", "'5'"] in lines
    assert f"cluster resourceflavors/{world.flavor('two')}" in other.stdout


# Killed in turn; the API server last, because Kueue may miss new flavors for a while after that.
KILLED = ("operator", "nats") * 3 + ("apiserver", "operator", "apiserver", "nats")


def test_queues_stay_active_and_jobs_keep_their_places_while_programs_are_killed(
    world: World, nats: NatsServer, watched: dict[str, list[tuple[float, str]]]
) -> None:
    """200 changes of pools, with kill -9 of operator, NATS server and API server in between.

    Only after a crash of the API server may a queue that new flavors come to be inactive for a
    while; one whose flavors stay never is.
    """
    flavor = world.nats_flavor(poolTimeout=6, poolRegExp="pool-.*")
    lends = [{"queue": f"{world.name}-team", "lendingLimit": {"pods": 2}}]
    name = world.master([{"name": "remote", "natsFlavor": flavor, "canLendTo": lends}])
    still = world.nats_flavor(poolTimeout=3600, pools=["still"])
    other = world.master([{"name": "remote", "natsFlavor": still}], "-other")
    pools = [f"pool-{number}" for number in range(10)]
    world.pools.offer("still", cpu=1, memory="1Gi", pods=1)
    world.pools.offer(pools[0], cpu=1, memory="1Gi", pods=1)
    for job, queue, place in (
        ("keeps", name, world.flavor(pools[0])),
        ("keeps-too", other, world.flavor("still", master=other)),
    ):
        world.job(job, world.local_queue(queue))
        world.until_admitted(job, place)
    places = {job: place_of(world, job) for job in ("keeps", "keeps-too")}
    crashed_s = float("inf")
    for change in range(200):
        pool = pools[change * 7 % 10]
        world.pools.offer(
            pool, cpu=change % 5 + 1, memory=f"{change % 3 + 1}Gi", pods=change % 4 + 1
        )
        if change % 20 == 10:
            if KILLED[change // 20] == "apiserver":
                crashed_s = min(crashed_s, time.monotonic())
            kill(world, nats, KILLED[change // 20])
        if change % 40 == 39:  # all the others fall silent, and come back
            world.pools.until(lambda p=pool: alive(world) == {p}, 60, "one pool alone", only=pool)
        time.sleep(0.05)
    last = {pool: dict(world.pools.offered(pool)) for pool in pools}
    world.pools.until(lambda: quotas(world, name) == last, 120, "the last word of every pool")
    limits = {
        world.flavor(pool): str(min(2, int(offered["pods"]))) for pool, offered in last.items()
    }
    world.pools.until(lambda: borrowed(world, f"{name}-team") == limits, 30, "the team's part")
    for queue in (name, f"{name}-team"):
        world.pools.until(lambda q=queue: watched[q][-1][1] == "True", 60, f"{queue} to be active")
        inactive = [event for event in watched[queue] if event[1] != "True"]
        assert [why for at_s, why in inactive if at_s < crashed_s] == []
        assert [why for _, why in inactive if not why.startswith("FlavorNotFound ")] == []
    assert {why for _, why in watched[other]} == {"True"}
    assert {job: place_of(world, job) for job in places} == places


def place_of(world: World, job: str) -> tuple[str, str, str]:
    """Return a Job's Workload, the flavor that it was admitted to, and since when."""
    workload = world.workloads()[job]
    conditions = {entry["type"]: entry for entry in workload["status"]["conditions"]}
    assert conditions["Admitted"]["status"] == "True"
    since = conditions["Admitted"]["lastTransitionTime"]
    return workload["metadata"]["uid"], world.admitted_to(job), since


def borrowed(world: World, queue: str) -> dict[str, str]:
    """How many pods it may have of each flavor."""
    groups = world.queue(queue)["spec"].get("resourceGroups") or [{"flavors": []}]
    return {
        flavor["name"]: resource["borrowingLimit"]
        for flavor in groups[0]["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == "pods"
    }


def kill(world: World, nats: NatsServer, program: str) -> None:
    """Kill a program and start it again."""
    if program == "operator":
        world.operator.stop(signal.SIGKILL)
        world.operator.start()
    elif program == "nats":
        nats.stop(signal.SIGKILL)
        nats.start()
    else:
        world.bed.kill(program)
        world.bed.start(program)


def quotas(world: World, queue: str) -> dict[str, Any]:
    """What a queue has of each pool, of what pools publish here."""
    (group,) = world.queue(queue)["spec"].get("resourceGroups") or [{"flavors": []}]
    return {
        flavor["name"].rpartition(".")[2]: {
            resource["name"]: resource["nominalQuota"]
            for resource in flavor["resources"]
            if resource["name"] in ("cpu", "memory", "pods")
        }
        for flavor in group["flavors"]
    }


def alive(world: World) -> set[str]:
    return set(quotas(world, world.name))


@pytest.fixture
def watched(bed: KueueBed) -> Iterator[dict[str, list[tuple[float, str]]]]:
    """Kueue's condition Active over time, by the queue."""
    watch = Watch(bed)
    yield watch.seen
    watch.stop()
