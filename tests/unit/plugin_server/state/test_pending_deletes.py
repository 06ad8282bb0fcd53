"""Deletes: promised at once, kept whatever happens."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugin_server.state.delete_records import DeleteRecord, DeleteRecordFiles
from templates.protocol import messages
from templates.protocol.messages import Delete, Refusal
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import Plugin, until
from tests.unit.plugin_server.pod_builders import create_request, job_of, pod, status
from tests.unit.plugin_server.site import Site

MakePlugin = Callable[..., Plugin]


def test_a_delete_reaches_the_site_with_its_grace_period(plugin: Plugin, site: Site) -> None:
    raw = pod()
    raw["metadata"]["deletionGracePeriodSeconds"] = 5
    answer = plugin.delete(raw)
    assert (answer.status_code, answer.text) == (200, "deleted")
    until(lambda: site.deleted == [Delete(job_of(raw), 5)])
    until(lambda: plugin.service.deletions.count_pending() == {"slurm-a": 0})


def test_a_create_after_its_delete_is_refused(plugin: Plugin, site: Site) -> None:
    raw = pod()
    plugin.delete(raw)
    answer = plugin.create(create_request(raw))
    assert answer.status_code == 409
    assert "was deleted before" in answer.text
    assert site.created == []


def test_a_delete_waits_for_a_site_that_is_away(plugin: Plugin, nats: NatsServer) -> None:
    raw = pod(pool="away")
    assert plugin.delete(raw).status_code == 200
    until(lambda: plugin.service.deletions.count_pending() == {"away": 1})
    with Site(nats.url, "away") as site:
        until(lambda: [delete.name for delete in site.deleted] == [job_of(raw)])


def test_a_delete_is_repeated_until_the_site_says_yes(plugin: Plugin, site: Site) -> None:
    tries: list[str] = []

    def refuse(kind: str, _: Any) -> Refusal | None:
        tries.append(kind)
        return Refusal(messages.UNAVAILABLE, "no space", True) if len(tries) < 3 else None

    site.refuse = refuse
    plugin.delete(pod())
    until(lambda: len(site.deleted) == 1)


def test_a_delete_that_is_repeated_is_told_once(
    plugin: Plugin, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [Refusal(messages.UNAVAILABLE, words, True) for words in ("full", "full", "slow")]
    site.refuse = lambda kind, message: answers.pop(0) if answers else None
    with caplog.at_level(logging.INFO, "plugin_server.nats.delete_retries"):
        raw = pod()
        plugin.delete(raw)
        until(lambda: len(site.deleted) == 1)
        until(lambda: plugin.service.deletions.count_pending() == {"slurm-a": 0})
    told = [record.getMessage().partition(": ")[2] for record in caplog.records]
    yet = "pool slurm-a has not deleted it yet"
    assert told == [f"{yet}: full", f"{yet}: slow", "pool slurm-a deletes it"]


def test_a_delete_that_the_site_will_never_carry_out_is_not_repeated_for_ever(
    plugin: Plugin, site: Site
) -> None:
    site.refuse = lambda kind, message: Refusal(messages.UNKNOWN, "no such job", False)
    plugin.delete(pod())
    until(lambda: plugin.service.deletions.count_pending() == {"slurm-a": 0})


def test_a_delete_outlives_the_plugin(
    make_plugin: MakePlugin, nats: NatsServer, tmp_path: Path
) -> None:
    first = make_plugin(state_directory=tmp_path / "state")
    raw = pod(pool="away")
    first.delete(raw)
    first.service.stop()
    second = make_plugin(state_directory=tmp_path / "state")
    assert second.create(create_request(raw)).status_code == 409
    with Site(nats.url, "away") as site:
        until(lambda: [delete.name for delete in site.deleted] == [job_of(raw)])
    until(lambda: list((tmp_path / "state").iterdir()) == [])


def test_the_pool_of_a_delete_is_the_one_that_has_the_job(plugin: Plugin, site: Site) -> None:
    raw = pod(pool="")
    site.say(status(raw))
    until(lambda: plugin.service.table.find(raw["metadata"]["uid"]))
    plugin.delete(raw)
    until(lambda: [delete.name for delete in site.deleted] == [job_of(raw)])


def test_a_delete_of_a_pod_without_a_pool_is_a_promise_too(plugin: Plugin, site: Site) -> None:
    raw = pod(pool="")
    assert plugin.delete(raw).status_code == 200
    raw["spec"]["tolerations"] = pod()["spec"]["tolerations"]
    assert plugin.create(create_request(raw)).status_code == 409


def test_the_last_status_stays_until_the_job_is_gone(plugin: Plugin, site: Site) -> None:
    raw = pod()
    plugin.create(create_request(raw))
    plugin.delete(raw)
    assert len(plugin.status(raw)) == 1
    site.say(gone=[job_of(raw)])
    until(lambda: plugin.status(raw) == [])


# --- files ----------------------------------------------------------------------------------------

RECORD = DeleteRecord("slurm-a", "train-0-6a1f0c1e-7f0b-4a38-9a36-2f4c9f6f0a11", 30)


def test_an_intent_is_read_back(tmp_path: Path) -> None:
    files = DeleteRecordFiles(str(tmp_path / "new" / "folder"))
    files.add(RECORD)
    files.add(RECORD)
    assert files.load() == [RECORD]
    files.remove(RECORD.job)
    files.remove(RECORD.job)
    assert files.load() == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        json.dumps({**RECORD._asdict(), "job": "../../etc"}).encode(),
        json.dumps({**RECORD._asdict(), "pool": "a.b"}).encode(),
        json.dumps({**RECORD._asdict(), "grace_period_s": -1}).encode(),
    ],
)
def test_a_file_that_is_no_intent_is_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.delete").write_bytes(content)
    DeleteRecordFiles(str(tmp_path)).add(RECORD)
    assert DeleteRecordFiles(str(tmp_path)).load() == [RECORD]


def test_a_directory_that_cannot_be_written_to_stops_no_delete(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    DeleteRecordFiles(str(tmp_path / "file" / "below")).add(RECORD)
    assert DeleteRecordFiles(str(tmp_path / "file" / "below")).load() == []
    assert DeleteRecordFiles("").load() == []
