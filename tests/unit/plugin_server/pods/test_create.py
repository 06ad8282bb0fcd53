"""Creates: exactly once, however often they are asked for, and with a clear line when they fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugin_server.pods import config_requests
from templates.protocol import messages
from templates.protocol.messages import Refusal
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import Plugin, settings_for, until
from tests.unit.plugin_server.pod_builders import create_request, job_of, pod
from tests.unit.plugin_server.site import Site

MakePlugin = Callable[..., Plugin]


def refused(plugin: Plugin, raw: dict[str, Any], status: int) -> str:
    """The one line of a create that fails."""
    answer = plugin.create(create_request(raw))
    assert answer.status_code == status, answer.text
    assert answer.content_type == "text/plain; charset=utf-8"
    assert answer.text.count("\n") == 1
    return str(answer.text).strip()


def heard(make_plugin: MakePlugin, site: Site, **changes: Any) -> Plugin:
    plugin = make_plugin(**changes)
    until(lambda: plugin.service.pools.config(site.pool))
    return plugin


# --- which pool -----------------------------------------------------------------------------------


def test_a_pod_that_names_no_pool_is_told_which_ones_there_are(
    plugin: Plugin, caplog: pytest.LogCaptureFixture
) -> None:
    raw = pod(pool="")
    words = refused(plugin, raw, 400)
    assert words == (
        "nothing was submitted: the pod names no pool; give it the toleration pool.vk.io with the "
        "name of a pool as its value (alive: slurm-a)"
    )
    assert f"pod team-a/train-0: {words}" in caplog.text


def test_a_virtual_kubelet_that_asks_how_a_refused_pod_is_doing_is_told_why_it_has_failed(
    plugin: Plugin,
) -> None:
    """Before interLink 0.6 the pod would stay pending for ever."""
    raw = pod(pool="")
    assert plugin.status(raw) == []
    words = refused(plugin, raw, 400)
    assert told_of(plugin, raw) == (1, words)
    raw["metadata"]["annotations"] = {"job.vk.io/pool": "slurm-a"}
    assert plugin.create(create_request(raw)).status_code == 200
    (main,) = plugin.status(raw)[0]["containers"]
    assert "waiting" in main["state"]


def told_of(plugin: Plugin, raw: dict[str, Any]) -> tuple[int, str]:
    """The exit code and message of a pod that was refused."""
    (main,) = plugin.status(raw)[0]["containers"]
    ended = main["state"]["terminated"]
    return ended["exitCode"], ended["message"]


ON_THE_ROOT = {
    "name": "main",
    "image": "busybox",
    "volumeMounts": [{"name": "d", "mountPath": "/"}],
}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (
            pod(containers=[ON_THE_ROOT], volumes=[{"name": "d", "emptyDir": {}}]),
            "volumeMounts[0].mountPath: must be a path below /",
        ),
        (pod(resourceClaims=[{"name": "gpu"}]), "resourceClaims: not supported"),
        (pod(pool="no.pool"), "toleration pool.vk.io: "),
    ],
)
def test_it_is_also_told_of_a_pod_that_could_not_be_read(
    plugin: Plugin, caplog: pytest.LogCaptureFixture, raw: dict[str, Any], words: str
) -> None:
    found = refused(plugin, raw, 400)
    assert words in found
    assert told_of(plugin, raw) == (1, found)
    assert f"pod team-a/train-0: {found}" in caplog.text
    plugin.delete(raw)
    assert plugin.status(raw) == []


def test_of_a_pod_that_was_refused_and_deleted_nothing_is_said(plugin: Plugin) -> None:
    early, late = pod(pool=""), pod()
    refused(plugin, early, 400)
    assert plugin.status(early) != []
    for raw in (early, late):
        plugin.delete(raw)
    assert "was deleted before" in refused(plugin, late, 409)
    assert plugin.status(early) == plugin.status(late) == []


def test_an_annotation_names_the_pool_of_a_pod_without_the_toleration(
    plugin: Plugin, site: Site
) -> None:
    raw = pod(pool="")
    raw["metadata"]["annotations"] = {"job.vk.io/pool": "slurm-a"}
    assert plugin.create(create_request(raw)).status_code == 200
    assert [job.name for job in site.created] == [job_of(raw)]


def test_the_toleration_wins_over_the_annotation(plugin: Plugin, site: Site) -> None:
    raw = pod()
    raw["metadata"]["annotations"] = {"job.vk.io/pool": "elsewhere"}
    assert plugin.create(create_request(raw)).status_code == 200
    assert len(site.created) == 1


def test_the_default_pool_takes_the_rest(make_plugin: MakePlugin, site: Site) -> None:
    plugin = heard(make_plugin, site, default_pool="slurm-a")
    raw = pod(pool="")
    assert plugin.create(create_request(raw)).status_code == 200
    assert plugin.status(raw)[0]["JID"] == job_of(raw)


def test_a_pool_that_nobody_has_heard_of_is_asked_for_and_then_refused(plugin: Plugin) -> None:
    words = refused(plugin, pod(pool="slurm-z"), 503)
    assert "pool slurm-z has not been heard of (alive: slurm-a)" in words


def test_who_chooses_another_pool_is_told_which_ones_are_in_trouble(
    plugin: Plugin, site: Site
) -> None:
    site.trouble = "no valid token: the issuer refuses"
    site.announce_now()
    trouble = "slurm-a (its batch system cannot be asked: no valid token: the issuer refuses)"
    until(lambda: trouble in refused(plugin, pod(pool=""), 400))
    assert f"(alive: {trouble})" in refused(plugin, pod(pool="slurm-z"), 503)


def test_a_pool_that_comes_while_the_create_waits_takes_it(
    make_plugin: MakePlugin, nats: NatsServer
) -> None:
    plugin = make_plugin()
    raw = pod(pool="late")
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(plugin.create(create_request(raw))))
    thread.start()
    with Site(nats.url, "late") as late:
        thread.join()
        assert answers[0].status_code == 200, answers[0].text
        assert len(late.created) == 1


@pytest.mark.parametrize("pool", ["a.b", "*", "x" * 64, "ü"])
def test_a_pool_that_cannot_be_one_is_refused(plugin: Plugin, pool: Any) -> None:
    assert "toleration pool.vk.io: must be 1 to 63" in refused(plugin, pod(pool=pool), 400)


@pytest.mark.parametrize(("pool", "value"), [("_site-", "p._site-.p"), ("-a", "p.-a")])
def test_a_toleration_names_a_pool_that_kubernetes_could_not_hold(
    plugin: Plugin, nats: NatsServer, pool: str, value: str
) -> None:
    with Site(nats.url, pool) as site:
        until(lambda: plugin.service.pools.config(pool))
        assert plugin.create(create_request(pod(pool=value))).status_code == 200
        assert len(site.created) == 1
    assert f"the pool {pool} is written {value}" in refused(plugin, pod(pool=pool), 400)


# --- exactly once ---------------------------------------------------------------------------------


def test_a_repeated_create_answers_the_same_and_submits_nothing(plugin: Plugin, site: Site) -> None:
    raw = pod()
    first = plugin.create(create_request(raw))
    second = plugin.create(create_request(raw))
    assert first.data == second.data
    assert len(site.created) == 1


def test_the_same_create_twice_at_once_is_one(plugin: Plugin, site: Site) -> None:
    raw = pod()
    barrier = threading.Barrier(8)
    answers: list[bytes] = []

    def create() -> None:
        barrier.wait()
        answers.append(plugin.create(create_request(raw)).data)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 1
    assert len(site.created) == 1


def test_a_create_that_the_site_knew_already_is_a_success(
    make_plugin: MakePlugin, site: Site
) -> None:
    raw = pod()
    first, second = (heard(make_plugin, site) for _ in range(2))
    assert first.create(create_request(raw)).data == second.create(create_request(raw)).data


def test_a_create_goes_on_until_the_site_takes_it(plugin: Plugin, site: Site) -> None:
    tries: list[str] = []

    def refuse(kind: str, _: Any) -> Refusal | None:
        tries.append(kind)
        return Refusal(messages.UNAVAILABLE, "the disk is full", True) if len(tries) < 3 else None

    site.refuse = refuse
    assert plugin.create(create_request(pod())).status_code == 200
    assert len(site.created) == 1


def test_a_create_waits_for_a_site_that_is_away(plugin: Plugin, nats: NatsServer) -> None:
    # The plugin knows how to build for the pool; nobody listens until its submitter is back.
    raw = pod(pool="away")
    with Site(nats.url, "away"):
        until(lambda: plugin.service.pools.config("away"))
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(plugin.create(create_request(raw))))
    thread.start()
    with Site(nats.url, "away") as back:
        thread.join()
        assert answers[0].status_code == 200
        assert [job.name for job in back.created] == [job_of(raw)]


# --- failures -------------------------------------------------------------------------------------


def test_a_site_that_is_away_for_too_long_fails_the_pod_with_one_line(
    make_plugin: MakePlugin, nats: NatsServer
) -> None:
    with Site(nats.url, "away") as site:
        plugin = heard(make_plugin, site, create_timeout_s=1)
    words = refused(plugin, pod(pool="away"), 504)
    is_told = "does not answer" not in words  # else the server was slower to say so than a second
    words = words.replace("its submitter does not answer", "no submitter of it is connected")
    assert words == (
        "nothing was submitted: pool away: no submitter of it is connected, waited 1 s; choose "
        "another pool, or ask the pool's admin"
    )
    assert plugin.service.deletions.count_pending() == ({} if is_told else {"away": 1})


def test_a_site_that_has_not_answered_is_told_to_forget_the_job(
    make_plugin: MakePlugin, site: Site
) -> None:
    plugin = heard(make_plugin, site, create_timeout_s=1)
    site.mute.add("create")
    raw = pod()
    words = refused(plugin, raw, 504)
    assert "pool slurm-a: its submitter does not answer, waited 1 s" in words
    until(lambda: [delete.name for delete in site.deleted] == [job_of(raw)])
    site.mute.clear()
    assert "was deleted before" in refused(plugin, raw, 409)


@pytest.mark.parametrize(
    ("refusal", "status", "words"),
    [
        (
            Refusal(messages.FORBIDDEN, "policy.images: docker.io/* may not run here", False),
            403,
            "pool slurm-a refuses the pod: policy.images: docker.io/* may not run here",
        ),
        (Refusal(messages.DELETED, "was deleted", False), 409, "was deleted before"),
        (Refusal(messages.MALFORMED, "create.script", False), 502, "tell its admin"),
        (Refusal(messages.UNAVAILABLE, "draining", False), 503, "pool slurm-a: draining"),
    ],
)
def test_a_refusal_says_whose_turn_it_is(
    plugin: Plugin, site: Site, refusal: Refusal, status: int, words: str
) -> None:
    site.refuse = lambda kind, message: refusal
    assert words in refused(plugin, pod(), status)


def test_what_a_site_cannot_give_is_refused_with_its_reason(plugin: Plugin) -> None:
    raw = pod(volumes=[{"name": "disk", "nfs": {"server": "s", "path": "/"}}])
    raw["spec"]["containers"][0]["volumeMounts"] = [{"name": "disk", "mountPath": "/disk"}]
    words = refused(plugin, raw, 400)
    assert words.startswith("nothing was submitted: pool slurm-a: pod.spec.volumes[disk]")


def test_without_nats_the_line_says_so(tmp_path: Path) -> None:
    from plugin_server.http.app import create_app

    server = NatsServer(tmp_path)  # never started
    plugin = Plugin(create_app(settings_for(server, create_timeout_s=1)))
    plugin.service.start()
    try:
        assert "no connection to NATS" in refused(plugin, pod(), 503)
    finally:
        plugin.service.stop()


def test_a_create_waits_for_a_connection_before_a_pool_counts_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plugin_server.http.app import create_app

    monkeypatch.setattr(config_requests, "ANSWER_S", 0.5)
    server = NatsServer(tmp_path)
    plugin = Plugin(create_app(settings_for(server, create_timeout_s=60)))
    plugin.service.start()
    answers: list[Any] = []
    raw = pod()
    thread = threading.Thread(target=lambda: answers.append(plugin.create(create_request(raw))))
    thread.start()
    try:
        thread.join(2)
        assert not answers
        server.start()
        with Site(server.url) as site:
            thread.join(60)
            assert answers[0].status_code == 200, answers[0].text
            assert [job.name for job in site.created] == [job_of(raw)]
    finally:
        plugin.service.stop()
        server.stop()


def test_more_waiting_creates_than_there_are_threads_for_are_turned_away(
    make_plugin: MakePlugin, site: Site
) -> None:
    plugin = heard(make_plugin, site, create_timeout_s=2, server_waiting_creates=1)
    site.mute.add("create")
    thread = threading.Thread(target=lambda: plugin.create(create_request(pod())))
    thread.start()
    until(lambda: plugin.service.creates._running)
    began = time.monotonic()
    raw = pod()
    words = refused(plugin, raw, 503)
    assert "1 pods wait for their sites" in words
    assert told_of(plugin, raw) == (1, words)
    assert time.monotonic() - began < 1
    thread.join()
