"""Orphans, told by a real API server to a real plugin with a real site: the account is the one of
docs/security.md, the deletions are those that no virtual kubelet has passed on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.kueue.plugin_account import (
    AFTER_S,
    NAMESPACE,
    created,
    knows_its_cluster,
    removed,
)
from tests.support.kueue_bed import KueueBed
from tests.support.system import Process, System, job_of, running


def plugin_of(system: System) -> Process:
    return system.processes["plugin"]


def running_pod(bed: KueueBed, system: System) -> dict[str, Any]:
    pod = created(bed, system)
    system.until(lambda: system.log(pod) == b"up\n", f"{job_of(pod)} runs")
    return pod


def test_a_job_whose_pod_was_removed_by_force_is_cancelled(
    bed: KueueBed, orphans: dict[str, Any], tmp_path: Path
) -> None:
    room = {"resources": {"cpu": "8", "memory": "8Gi"}}
    with running(tmp_path, plugin={"orphans": orphans}, workers=2, pool=room) as system:
        system.until(lambda: knows_its_cluster(system), "Kubernetes has been asked")
        kept, lost, while_away = (running_pod(bed, system) for _ in range(3))
        removed(bed, lost)
        system.until(lambda: not system.directory(lost).exists(), "the orphan is removed")
        system.kill("plugin")
        removed(bed, while_away)
        system.plugin.close()
        system.start("plugin")
        system.until(lambda: not system.directory(while_away).exists(), "that one, too")
        assert system.log(kept) == b"up\n"
        status = system.status(kept)
        assert status is not None and "running" in status["containers"][0]["state"]
        assert f"{job_of(lost)}: cancelled as an orphan" in plugin_of(system).log()
        assert job_of(kept) not in "".join(
            line for line in plugin_of(system).log().splitlines() if "orphan" in line
        )


def test_an_api_server_that_is_away_says_nothing(
    bed: KueueBed, orphans: dict[str, Any], tmp_path: Path
) -> None:
    with running(tmp_path, plugin={"orphans": orphans}) as system:
        system.until(lambda: knows_its_cluster(system), "Kubernetes has been asked")
        pod = running_pod(bed, system)
        bed.kill("apiserver")
        system.until(lambda: "orphans: https://" in plugin_of(system).log(), "it is missed")
        end = time.monotonic() + 3 * AFTER_S
        while time.monotonic() < end:
            assert system.directory(pod).exists()
            time.sleep(0.2)
        bed.start("apiserver")
        system.until(lambda: "Kubernetes answers again" in plugin_of(system).log(), "it is back")
        assert system.log(pod) == b"up\n"
        removed(bed, pod)
        system.until(lambda: not system.directory(pod).exists(), "now it is an orphan")


def test_without_the_right_the_log_says_which_is_missing(
    bed: KueueBed, account: dict[str, Any], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(bed.token("default", NAMESPACE))
    settings = {**account, "token_file": str(token)}
    (tmp_path / "system").mkdir()
    with running(tmp_path / "system", plugin={"orphans": settings}) as system:
        words = (
            'namespaces "kube-system" is forbidden: User "system:serviceaccount:interlink:default"'
        )
        system.until(lambda: words in plugin_of(system).log(), "the log says so")
