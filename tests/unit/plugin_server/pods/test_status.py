"""Answers to status requests: from memory, repaired when something was missed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from plugin_server.nats import resync
from plugin_server.pods import job_lookup
from plugin_server.pods import status as statuses
from templates.job.records import RUNNING, TERMINATED, ContainerState, End
from templates.job.status import Version
from templates.nats.connection import Request
from templates.protocol.messages import Refusal, read_query
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import Plugin, until
from tests.unit.plugin_server.pod_builders import containers, create_request, job_of, pod, status
from tests.unit.plugin_server.site import Site

MakePlugin = Callable[..., Plugin]


def phase_of(plugin: Plugin, raw: dict[str, Any]) -> str:
    entry = plugin.service.table.find(raw["metadata"]["uid"])
    return entry.status.phase if entry is not None else "unknown"


def synced(plugin: Plugin, site: Site) -> None:
    until(lambda: plugin.service.resync.completed)
    until(lambda: not plugin.service.resync.is_syncing(site.pool))
    site.queries.clear()


# --- what is missed is noticed --------------------------------------------------------------------


def test_a_plugin_that_starts_late_knows_all_jobs(make_plugin: MakePlugin, site: Site) -> None:
    pods = [pod(name=f"p-{number}") for number in range(1200)]
    for raw in pods:
        site.jobs[job_of(raw)] = status(raw, "queued")
    plugin = make_plugin()
    until(lambda: plugin.service.table.count(site.pool) == 1200)
    assert len(plugin.status(*pods)) == 1200
    assert [query.cursor for query in site.queries] == ["", "500", "1000"]


def test_a_publication_that_got_lost_is_noticed_by_the_next_sign_of_life(
    plugin: Plugin, site: Site
) -> None:
    raw = pod()
    synced(plugin, site)
    site.say(status(raw, "started"), lose=True)
    assert phase_of(plugin, raw) == "unknown"
    site.heartbeat()
    until(lambda: phase_of(plugin, raw) == "started")
    assert site.queries[0].jobs is None


def test_what_arrives_in_order_asks_for_nothing(plugin: Plugin, site: Site) -> None:
    synced(plugin, site)
    for raw in (pod(), pod()):
        site.say(status(raw, "queued"))
        site.heartbeat()
    until(lambda: plugin.service.table.count(site.pool) == 2)
    assert site.queries == []


def test_a_second_submitter_of_a_pool_is_listened_to(
    plugin: Plugin, site: Site, nats: NatsServer
) -> None:
    raw = pod()
    with Site(nats.url) as second:
        second.say(status(raw, "queued"))
        until(lambda: phase_of(plugin, raw) == "queued")


def test_a_count_that_stays_wrong_is_looked_into(plugin: Plugin, site: Site) -> None:
    synced(plugin, site)
    raw = pod()
    site.jobs[job_of(raw)] = status(raw, "started")  # without a word
    for _ in range(resync.MISCOUNTS):
        assert site.queries == []
        site.heartbeat()
    until(lambda: phase_of(plugin, raw) == "started")


def test_a_snapshot_ends_what_the_site_no_longer_has(
    plugin: Plugin, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync, "MARGIN_S", -10.0)
    raw = pod()
    synced(plugin, site)
    site.say(status(raw, "started"))
    until(lambda: phase_of(plugin, raw) == "started")
    del site.jobs[job_of(raw)]
    site.say(gone=["some-other-" + raw["metadata"]["uid"]], lose=True)
    site.heartbeat()
    until(lambda: phase_of(plugin, raw) == "unknown")


def test_malformed_publications_change_nothing(plugin: Plugin, site: Site) -> None:
    raw = pod()
    site.say(status(raw, "queued"))
    until(lambda: phase_of(plugin, raw) == "queued")
    for kind in ("status", "config", "resources"):
        for content in (b"", b"\xff", b"[]", b"{}", b'{"v": 2}', b'{"v": 1, "pool": "other"}'):
            site.publish_raw(kind, content)
    site.say(status(raw, "started"))
    until(lambda: phase_of(plugin, raw) == "started")
    assert plugin.service.pools.config(site.pool) is not None


# --- a site can lie about its own pool only -------------------------------------------------------


def test_another_pool_cannot_speak_of_a_pod(plugin: Plugin, site: Site, nats: NatsServer) -> None:
    raw = pod()
    plugin.create(create_request(raw))
    with Site(nats.url, "liar") as liar:
        liar.say(status(raw, "ended", containers=_failed(raw)))
        until(lambda: plugin.service.table.count("liar") == 1)
        assert "waiting" in plugin.status(raw)[0]["containers"][0]["state"]


class Endless(Site):
    """A site whose answers to queries have jobs that nobody asked for, and always one more page."""

    invented = 100

    async def _query(self, request: Request) -> None:
        self.queries.append(read_query(await request.message(self.pool)))
        states = tuple(status(pod()) for _ in range(self.invented))
        cursor = str(len(self.queries))
        await request.answer_raw(self.pool, self._page(states, (), cursor))


@pytest.mark.parametrize("invented", [0, 1, 100])
def test_pages_that_never_end_are_given_up(
    make_plugin: MakePlugin,
    nats: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    invented: int,
) -> None:
    monkeypatch.setattr(resync, "MAX_JOBS", 500)
    monkeypatch.setattr(resync, "RETRY_S", 600)
    caplog.set_level("INFO")
    monkeypatch.setattr(Endless, "invented", invented)
    with Endless(nats.url, "endless") as site:
        plugin = make_plugin()
        until(lambda: "its pages do not end" in caplog.text, 60)
        assert len(site.queries) <= 502
        assert plugin.service.table.count("endless") <= 600


def test_a_query_for_some_pods_is_over_when_the_site_answers_with_others(
    plugin: Plugin, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync.Resync, "apply", lambda *_: None)  # no query but the one below
    with Endless(nats.url, "endless") as site:
        assert plugin.status(pod(pool="endless")) == []
        assert len(site.queries) == 1
        assert plugin.service.table.count("endless") == 0


def _failed(raw: dict[str, Any]) -> Any:
    end = End(1, 0, "", "", 0, 0)
    return containers(raw, main=ContainerState("", TERMINATED, end=end))


# --- pods that are not known ----------------------------------------------------------------------


def test_a_pod_that_nobody_has_spoken_of_is_looked_up(plugin: Plugin, site: Site) -> None:
    synced(plugin, site)
    raw = pod()
    site.jobs[job_of(raw)] = status(raw, "started")
    assert len(plugin.status(raw)) == 1
    assert site.queries[0].jobs == (job_of(raw),)


def test_an_unknown_pod_is_left_out_and_not_asked_for_again_at_once(
    plugin: Plugin, site: Site
) -> None:
    synced(plugin, site)
    raw, known = pod(), pod()
    site.say(status(known))
    until(lambda: phase_of(plugin, known) == "started")
    for _ in range(5):
        assert [found["UID"] for found in plugin.status(raw, known)] == [known["metadata"]["uid"]]
    assert len(site.queries) == 1


def test_a_site_that_does_not_answer_costs_a_second_once(plugin: Plugin, site: Site) -> None:
    synced(plugin, site)
    site.mute.add("query")
    began = time.monotonic()
    for _ in range(20):
        assert plugin.status(pod(adopted=True)) == []
    assert time.monotonic() - began < 2 * job_lookup.ANSWER_S + 1


def test_a_pool_that_nobody_serves_costs_nothing_and_loses_nothing(plugin: Plugin) -> None:
    for _ in range(20):
        assert plugin.status(pod(pool="away", adopted=True)) == []


def test_a_pod_that_the_site_confirms_to_be_missing_fails_after_the_grace_time(
    make_plugin: MakePlugin, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_lookup, "AGAIN_S", 0.1)
    plugin = make_plugin(lost_after_s=1)
    until(lambda: plugin.service.pools.config(site.pool))
    synced(plugin, site)
    fresh, raw = pod(), pod(adopted=True)
    began = time.monotonic()
    (found,) = until(lambda: plugin.status(raw))
    assert time.monotonic() - began >= 1
    ended = found["containers"][0]["state"]["terminated"]
    assert ended["exitCode"] == 1
    assert ended["message"].startswith(f"lost: pool slurm-a had taken the job {job_of(raw)}")
    assert plugin.status(fresh) == []


def test_a_site_that_is_silent_loses_nothing(
    make_plugin: MakePlugin, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_lookup, "AGAIN_S", 0.01)
    monkeypatch.setattr(job_lookup, "PAUSE_S", 0.01)
    monkeypatch.setattr(job_lookup, "ANSWER_S", 0.1)
    plugin = make_plugin(lost_after_s=1)
    until(lambda: plugin.service.pools.config(site.pool))
    synced(plugin, site)
    raw = pod(adopted=True)
    assert plugin.status(raw) == []  # confirmed once
    site.mute.add("query")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert plugin.status(raw) == []
    site.mute.clear()
    assert plugin.status(raw) == []


# --- the answers ----------------------------------------------------------------------------------


def test_the_same_question_gets_a_new_answer_when_something_has_changed(
    plugin: Plugin, site: Site
) -> None:
    raw = pod()
    site.say(status(raw, "queued", message="one"))
    body = json.dumps([raw])
    until(lambda: plugin.client.get("/status", data=body).get_json())
    ended = status(raw, "ended", containers=_failed(raw), version=Version(1, 3, 1))
    site.say(ended)
    until(lambda: "terminated" in plugin.client.get("/status", data=body).text)


def test_so_does_a_question_about_many_pods_of_which_one_has_changed(
    plugin: Plugin, site: Site
) -> None:
    pods = [pod(name=f"p-{number}") for number in range(400)]
    site.say(*(status(raw, "queued") for raw in pods))
    until(lambda: plugin.service.table.count(site.pool) == 400)
    body = json.dumps(pods)
    assert len(body) > statuses.SMALL_REQUEST
    first = plugin.client.get("/status", data=body).text
    assert plugin.client.get("/status", data=body).text == first
    ended = status(pods[7], "ended", containers=_failed(pods[7]), version=Version(1, 3, 1))
    site.say(ended)
    until(lambda: plugin.client.get("/status", data=body).text.count("terminated") == 1)


def test_two_that_ask_differently_get_an_answer_each(plugin: Plugin, site: Site) -> None:
    raw = pod()
    other = json.loads(json.dumps(raw))
    other["spec"]["containers"].append({"name": "local", "image": "busybox"})
    site.say(status(raw))
    until(lambda: phase_of(plugin, raw) == "started")
    for _ in range(3):
        assert len(plugin.status(raw)[0]["containers"]) == 1
        assert len(plugin.status(other)[0]["containers"]) == 2


def test_a_pod_without_containers_is_never_answered(plugin: Plugin, site: Site) -> None:
    raw = pod()
    site.say(status(raw))
    until(lambda: phase_of(plugin, raw) == "started")
    raw["spec"]["containers"] = []
    assert plugin.status(raw) == []


def test_it_may_be_asked_by_post_too(plugin: Plugin) -> None:
    assert plugin.client.post("/status", data=json.dumps([pod()])).get_json() == []


# --- what was shown already -----------------------------------------------------------------------


def shown_as(raw: dict[str, Any], state: str) -> dict[str, Any]:
    """The pod as the virtual kubelet sends it once it has heard of that state."""
    containers = [{"name": "main", "state": {state: {}}}]
    return {**raw, "status": {"phase": "Running", "containerStatuses": containers}}


def test_a_worker_that_knows_less_than_was_shown_asks_the_site(plugin: Plugin, site: Site) -> None:
    raw = pod()
    synced(plugin, site)
    site.say(status(raw, "queued"))
    until(lambda: phase_of(plugin, raw) == "queued")
    running = containers(raw, main=ContainerState("main", RUNNING))
    site.say(status(raw, "started", containers=running), lose=True)
    (waits,) = plugin.status(raw)
    assert "waiting" in waits["containers"][0]["state"]
    (runs,) = plugin.status(shown_as(raw, "running"))
    assert "running" in runs["containers"][0]["state"]


def test_a_pod_does_not_go_back_while_its_site_cannot_say_why(plugin: Plugin, site: Site) -> None:
    raw = pod()
    synced(plugin, site)
    site.say(status(raw, "queued"))
    until(lambda: phase_of(plugin, raw) == "queued")
    site.refuse = lambda kind, _: Refusal("unavailable", "not now", True)
    assert plugin.status(shown_as(raw, "running")) == []


def test_a_pod_that_its_site_has_put_back_into_the_queue_waits_again(
    plugin: Plugin, site: Site
) -> None:
    raw = pod()
    synced(plugin, site)
    site.say(status(raw, "queued"))
    until(lambda: phase_of(plugin, raw) == "queued")
    (waits,) = plugin.status(shown_as(raw, "running"))
    assert "waiting" in waits["containers"][0]["state"]
    assert [query.jobs for query in site.queries] == [(job_of(raw),)]


def test_a_site_that_contradicts_itself_spoils_no_status_of_other_pods(
    plugin: Plugin, site: Site
) -> None:
    odd, other = pod(), pod()
    site.say(status(odd, "ended", exit_code=3), status(other, "queued"))  # its container waits
    until(lambda: phase_of(plugin, other) == "queued")
    ended, queued = plugin.status(odd, other)
    assert ended["containers"][0]["state"]["terminated"]["exitCode"] == 3
    assert "waiting" in queued["containers"][0]["state"]
