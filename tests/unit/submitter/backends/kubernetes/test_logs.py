"""Logs of a site's cluster as files (tests/sites/kubernetes has a real cluster)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from submitter.backends.kubernetes.client import Api
from submitter.backends.kubernetes.logs import PodLogs

# 2026-11-19T05:00:01Z and the seconds after it.
FIRST = 1795064401


class Cluster:
    """Answers each question about a log with what it has been told to; it stands for an ``Api``."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.asked: list[Mapping[str, str]] = []

    def log(self, pod: str, query: Mapping[str, str]) -> Iterator[bytes]:
        self.asked.append(query)
        return (f"{line}\n".encode() for line in self.lines)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def logs(cluster: Cluster) -> PodLogs:
    return PodLogs(cast(Api, cluster))


def fetch(logs: PodLogs, directory: Path) -> bool:
    return logs.fetch("pod", str(directory), "main", 0, now=True)


def text(directory: Path) -> str:
    return (directory / "logs" / "main.0.log").read_text()


def index(directory: Path) -> list[str]:
    return (directory / "logs" / "main.0.log.idx").read_text().split("\n")[:-1]


def test_what_is_new_is_appended(cluster: Cluster, logs: PodLogs, tmp_path: Path) -> None:
    cluster.lines = ["2026-11-19T05:00:01.5Z one", "2026-11-19T05:00:02Z two"]
    assert fetch(logs, tmp_path)
    cluster.lines = ["2026-11-19T05:00:02Z two", "2026-11-19T05:00:02Z three"]
    assert fetch(logs, tmp_path)
    assert text(tmp_path) == "one\ntwo\nthree\n"
    assert cluster.asked[1]["sinceTime"] == "2026-11-19T05:00:02Z"


@pytest.mark.parametrize("zone", ["+01:00", "-11:30", "Z"])
def test_nodes_may_have_any_time_zone(
    cluster: Cluster, logs: PodLogs, tmp_path: Path, zone: str
) -> None:
    local = {"+01:00": "19T06:00", "-11:30": "18T17:30", "Z": "19T05:00"}[zone]
    cluster.lines = [f"2026-11-{local}:01.25{zone} one", f"2026-11-{local}:02.25{zone} two"]
    assert fetch(logs, tmp_path)
    assert fetch(logs, tmp_path)
    assert text(tmp_path) == "one\ntwo\n"
    assert index(tmp_path)[:2] == [f"{FIRST} 4", f"{FIRST + 1} 8"]
    assert cluster.asked[1]["sinceTime"] == "2026-11-19T05:00:02.25Z"


@pytest.mark.parametrize(
    "words",
    [
        "unable to retrieve container logs for containerd://0123456789abcdef",
        'failed to open log file "/var/log/pods/x/main/0.log": no such file or directory',
        "",
        "2026-11-19T05:00:01Z",
    ],
)
def test_a_node_that_has_no_log_says_so_in_its_place(
    cluster: Cluster, logs: PodLogs, tmp_path: Path, words: str
) -> None:
    cluster.lines = [words]
    assert not fetch(logs, tmp_path)
    assert not (tmp_path / "logs" / "main.0.log").exists()
    cluster.lines = ["2026-11-19T05:00:01Z one", words, "2026-11-19T05:00:02Z two"]
    assert fetch(logs, tmp_path)
    assert text(tmp_path) == "one\ntwo\n"


def test_a_container_that_says_nothing_has_a_log(
    cluster: Cluster, logs: PodLogs, tmp_path: Path
) -> None:
    cluster.lines = []
    assert fetch(logs, tmp_path)
    assert text(tmp_path) == ""
