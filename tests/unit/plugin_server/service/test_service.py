"""A pod's whole way through the plugin, with a real nats-server between it and its site."""

from __future__ import annotations

import json
from typing import Any

import pytest

from templates.job.records import RUNNING, ContainerState
from tests.unit.plugin_server.conftest import Plugin, until
from tests.unit.plugin_server.pod_builders import containers, create_request, job_of, pod, status
from tests.unit.plugin_server.site import Site


def log_request(raw: dict[str, Any], **options: Any) -> str:
    metadata = raw["metadata"]
    return json.dumps(
        {
            "Namespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "PodName": metadata["name"],
            "ContainerName": "main",
            "Opts": options,
        }
    )


def test_a_pod_is_created_watched_read_and_deleted(plugin: Plugin, site: Site) -> None:
    raw = pod()
    answer = plugin.create(create_request(raw))
    assert answer.status_code == 200, answer.text
    assert answer.get_json() == {"PodUID": raw["metadata"]["uid"], "PodJID": job_of(raw)}
    assert [job.name for job in site.created] == [job_of(raw)]
    waiting = {"waiting": {"reason": "Submitting", "message": ""}}
    assert plugin.status(raw)[0]["containers"][0]["state"] == waiting

    running = ContainerState("", RUNNING, started_ms=1795021200123, begun=True, ready=True)
    site.say(status(raw, containers=containers(raw, main=running)))
    state = until(lambda: plugin.status(raw)[0]["containers"][0]["state"].get("running"))
    assert state == {"startedAt": "2026-11-18T17:00:00Z"}

    log = b"hello\n" * 100_000
    site.logs[job_of(raw), "main"] = log
    answer = plugin.client.get("/getLogs", data=log_request(raw))
    assert (answer.status_code, answer.data) == (200, log)

    assert plugin.delete(raw).status_code == 200
    until(lambda: [delete.name for delete in site.deleted] == [job_of(raw)])


def test_the_ping_says_what_the_live_pools_offer(plugin: Plugin, site: Site) -> None:
    until(plugin.service.pools.totals)
    answer = plugin.client.get("/status", data=b"[]")
    resources = {"cpu": "8", "memory": str(16 * 2**30), "pods": "100"}
    assert answer.get_json() == {"status": "ok", "resources": resources}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_it_says_how_it_is(plugin: Plugin, path: str) -> None:
    assert plugin.client.get(path).status_code == 200
