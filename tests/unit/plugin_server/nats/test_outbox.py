"""Jobs on their way to a site: together where they come together, never held up by each other."""

from __future__ import annotations

import threading
from typing import Any

from plugin_server.nats.outbox import MAX_BATCH_BYTES
from templates.nats.subjects import CREATE
from templates.protocol import messages
from templates.protocol.messages import Refusal
from tests.unit.plugin_server.conftest import Plugin, until
from tests.unit.plugin_server.pod_builders import create_request, job_of, pod
from tests.unit.plugin_server.site import Site


class Create(threading.Thread):
    """One create, answered in time."""

    def __init__(self, plugin: Plugin, raw: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self._plugin, self.raw = plugin, raw
        self.answer: Any = None
        self.start()

    def run(self) -> None:
        self.answer = self._plugin.create(create_request(self.raw))

    def status(self) -> int:
        self.join(30)
        return int(self.answer.status_code)


def posted_together(plugin: Plugin, pods: list[dict[str, Any]]) -> list[int]:
    """The HTTP statuses of creates that the loop sees at the same moment."""
    handed_over, go_on = plugin.service.creates._handover._submits, threading.Event()
    plugin.service.bridge.call_soon(go_on.wait)
    creates = []
    for number, raw in enumerate(pods, 1):
        creates.append(Create(plugin, raw))
        until(lambda: len(handed_over) == number)  # noqa: B023
    go_on.set()
    return [create.status() for create in creates]


def large_pod(size: int) -> dict[str, Any]:
    raw = pod()
    variable = {"name": "LARGE", "value": "x" * size}
    raw["spec"]["containers"][0]["env"] = [variable]
    return raw


def test_what_waits_for_the_same_site_goes_in_one_message(plugin: Plugin, site: Site) -> None:
    pods = [pod() for _ in range(6)]
    assert posted_together(plugin, pods) == [200] * 6
    assert site.together == [6]
    assert [job.name for job in site.created] == [job_of(raw) for raw in pods]


def test_a_message_is_not_made_too_large_by_what_could_go_in_the_next(
    plugin: Plugin, site: Site
) -> None:
    size = min(MAX_BATCH_BYTES // 2, 100_000)
    assert posted_together(plugin, [large_pod(size) for _ in range(4)]) == [200] * 4
    assert site.together == [1, 1, 1, 1]


def test_the_refusal_of_one_is_not_that_of_those_beside_it(plugin: Plugin, site: Site) -> None:
    pods = [pod() for _ in range(3)]

    def refuse(_: str, job: Any) -> Refusal | None:
        forbidden = Refusal(messages.FORBIDDEN, "no such pods here", False)
        return forbidden if job.name == job_of(pods[1]) else None

    site.refuse = refuse
    assert posted_together(plugin, pods) == [200, 403, 200]


def test_a_site_that_does_not_answer_holds_up_no_later_create(plugin: Plugin, site: Site) -> None:
    site.mute.add(CREATE)
    unanswered = Create(plugin, pod())
    until(lambda: site.together)
    site.mute.clear()
    assert Create(plugin, pod()).status() == 200
    assert unanswered.answer is None


def test_whoever_waits_is_told_when_the_plugin_stops(plugin: Plugin, site: Site) -> None:
    site.mute.add(CREATE)
    unanswered = Create(plugin, pod())
    until(lambda: site.together)
    plugin.service.stop()
    assert unanswered.status() == 503
    assert "the plugin is stopping" in unanswered.answer.text
