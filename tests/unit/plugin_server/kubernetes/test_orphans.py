"""Jobs without a pod: cancelled if that is certain and they are few, else never."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugin_server.kubernetes.client import PodApiError
from plugin_server.kubernetes.orphans import WINDOW_S, Brake, Candidate, MissingPods
from tests.unit.plugin_server.conftest import Plugin, until
from tests.unit.plugin_server.kube_api import KubeApi
from tests.unit.plugin_server.pod_builders import create_request, job_of, pod, status
from tests.unit.plugin_server.site import Site

MakePlugin = Callable[..., Plugin]


# --- who is missing, and for how long -------------------------------------------------------------


def candidate(pool: str = "a") -> Candidate:
    return Candidate(pool, status(pod()))


def test_a_job_has_to_be_missing_in_two_lists_far_enough_apart() -> None:
    missing, here, gone = MissingPods(100), candidate(), candidate()
    pods = {here.job.uid}
    assert missing.update([here, gone], pods, 0) == []
    assert missing.update([here, gone], pods, 99) == []
    assert missing.update([here, gone], pods, 100) == [gone]


def test_a_pod_that_is_seen_begins_anew() -> None:
    missing, one = MissingPods(100), candidate()
    missing.update([one], set(), 0)
    missing.update([one], {one.job.uid}, 50)
    assert missing.update([one], set(), 101) == []
    assert missing.update([one], set(), 201) == [one]


def test_one_list_says_nothing_however_late_it_comes() -> None:
    assert MissingPods(1).update([candidate()], set(), 1e9) == []


def test_what_is_no_candidate_any_more_is_forgotten() -> None:
    missing, one = MissingPods(100), candidate()
    missing.update([one], set(), 0)
    missing.update([], set(), 50)
    assert missing.update([one], set(), 101) == []


# --- the brake ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("orphans", "jobs", "passes"),
    [(20, 20, True), (21, 400, False), (21, 420, True), (500, 10_000, True), (501, 10_000, False)],
)
def test_few_may_pass_and_many_may_not(orphans: int, jobs: int, passes: bool) -> None:
    assert Brake(20).lets_pass("a", orphans, jobs, 0) is passes


def test_an_hour_counts_as_a_whole_and_each_pool_for_itself() -> None:
    brake = Brake(20)
    assert brake.lets_pass("a", 15, 15, 0)
    assert not brake.lets_pass("a", 6, 15, WINDOW_S - 1)
    assert brake.lets_pass("a", 5, 15, WINDOW_S - 1)
    assert brake.lets_pass("b", 20, 20, WINDOW_S - 1)
    assert brake.lets_pass("a", 15, 15, WINDOW_S)
    assert not brake.lets_pass("a", 1, 15, WINDOW_S)


# --- the whole of it ------------------------------------------------------------------------------


@pytest.fixture
def api(tmp_path: Path) -> Iterator[KubeApi]:
    with KubeApi(tmp_path / "api") as found:
        yield found


@pytest.fixture
def sweeping(make_plugin: MakePlugin, site: Site, api: KubeApi) -> MakePlugin:
    def make(**changes: Any) -> Plugin:
        plugin = make_plugin(
            orphans_api_server=api.url,
            orphans_token_file=api.token_file,
            orphans_ca_file=api.ca_file,
            orphans_after_s=1,
            **changes,
        )
        until(lambda: plugin.service.pools.config(site.pool))
        assert plugin.service.orphans is not None
        until(lambda: plugin.service.orphans.origin)  # type: ignore[union-attr]
        return plugin

    return make


def created(plugin: Plugin, api: KubeApi) -> dict[str, Any]:
    """A pod that Kubernetes has, and its job."""
    raw = pod()
    api.pods.append(raw["metadata"]["uid"])
    assert plugin.create(create_request(raw)).status_code == 200
    return raw


def after_lists(api: KubeApi, count: int = 5) -> None:
    """So many more lists of all pods: with a second's grace, three are enough."""
    seen = api.lists
    until(lambda: api.lists >= seen + count, 20)


def metric(plugin: Plugin, name: str) -> str:
    page = plugin.client.get("/metrics").text
    found = re.search(rf"^interlink_plugin_{name} (.+)$", page, re.MULTILINE)
    return found[1] if found else ""


def test_a_job_says_which_cluster_it_belongs_to(
    sweeping: MakePlugin, site: Site, api: KubeApi
) -> None:
    plugin = sweeping()
    raw = created(plugin, api)
    assert [job.origin for job in site.created] == [api.cluster]
    assert site.jobs[job_of(raw)].origin == api.cluster


def test_an_orphan_is_cancelled_and_nothing_else(
    sweeping: MakePlugin, site: Site, api: KubeApi, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = sweeping()
    kept, lost = created(plugin, api), created(plugin, api)
    foreign = status(pod(), origin=str(uuid.uuid4()))
    nobodys = status(pod())
    site.say(foreign, nobodys, site.jobs[job_of(kept)], site.jobs[job_of(lost)])
    api.pods.remove(lost["metadata"]["uid"])
    until(lambda: site.deleted, 20)
    after_lists(api)
    assert [delete.name for delete in site.deleted] == [job_of(lost)]
    assert f"{job_of(lost)}: cancelled as an orphan" in caplog.text
    assert plugin.create(create_request(lost)).status_code == 409
    assert metric(plugin, r'orphans_cancelled_total\{pool="slurm-a"\}') == "1.0"
    assert float(metric(plugin, "kubernetes_silent_seconds")) < 20


def test_an_orphan_of_the_time_before_a_restart_is_found(
    sweeping: MakePlugin, site: Site, api: KubeApi
) -> None:
    first = sweeping()
    raw = created(first, api)
    site.say(site.jobs[job_of(raw)])
    first.service.stop()
    api.pods.clear()
    sweeping()
    until(lambda: [delete.name for delete in site.deleted] == [job_of(raw)], 20)


def test_many_at_once_are_held_until_somebody_has_looked(
    sweeping: MakePlugin, site: Site, api: KubeApi, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = sweeping(orphans_at_once=2)
    pods = [created(plugin, api) for _ in range(3)]
    gone = list(api.pods)
    api.pods.clear()
    until(lambda: metric(plugin, r'orphans_held\{pool="slurm-a"\}') == "3.0", 20)
    after_lists(api)
    assert site.deleted == []
    held = "Kubernetes does not know the pods of 3 jobs; these are more orphans than the brake"
    assert caplog.text.count(held) == 1
    api.pods.append(gone[0])  # somebody has looked, and some are there again
    until(lambda: len(site.deleted) == 2, 20)
    assert {delete.name for delete in site.deleted} == {job_of(raw) for raw in pods[1:]}
    until(lambda: metric(plugin, r'orphans_held\{pool="slurm-a"\}') == "0.0", 20)


def test_errors_say_nothing(
    sweeping: MakePlugin, site: Site, api: KubeApi, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = sweeping()
    created(plugin, api)
    orphans = plugin.service.orphans
    assert orphans is not None
    for answer in ((500, b""), (200, {"items": []}), (403, {"message": "pods is forbidden"})):
        api.answers["/api/v1/pods"] = answer
        with pytest.raises(PodApiError):  # and that ends the round, before anything is judged
            orphans.look()
    until(lambda: "orphans: the API server says 403: pods is forbidden" in caplog.text)
    del api.answers["/api/v1/pods"]
    after_lists(api)
    assert "Kubernetes answers again" in caplog.text
    assert site.deleted == []


def test_another_cluster_behind_the_same_address_judges_nothing(
    sweeping: MakePlugin, site: Site, api: KubeApi
) -> None:
    plugin = sweeping()
    created(plugin, api)
    api.cluster, api.pods = str(uuid.uuid4()), []
    after_lists(api)
    assert site.deleted == []


def test_without_an_account_nothing_is_looked_for(plugin: Plugin, site: Site) -> None:
    assert plugin.create(create_request(pod())).status_code == 200
    assert plugin.service.orphans is None
    assert [job.origin for job in site.created] == [""]
    assert "orphans" not in plugin.client.get("/metrics").text
