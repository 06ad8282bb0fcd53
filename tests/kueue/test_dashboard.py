"""Every query of the chart's dashboard, asked of a real Prometheus about programs that run."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.interlink import Answer
from tests.kueue.plugin_account import created, knows_its_cluster
from tests.support.kueue_bed import REPO, KueueBed
from tests.support.kueue_operator import Operator
from tests.support.prometheus import PATIENCE_S, Prometheus
from tests.support.system import System, request_of, running

NAMESPACE = "interlink"
DASHBOARD = json.loads((REPO / "chart" / "files" / "dashboard.json").read_text())
QUIET = {"Pools with errors", "Pools with errors, by pool"}  # never, of a pool of the tests

Json = dict[str, Any]


def panels(*, of_deletions: bool) -> list[Json]:
    """Those about deletions that wait, which takes a site that is away; or all others."""
    waiting = "interlink_plugin_deletions_waiting"
    return [
        panel
        for panel in DASHBOARD["panels"]
        if of_deletions == any(waiting in target["expr"] for target in panel["targets"])
    ]


def query(target: Json) -> str:
    """As Grafana sends it."""
    text = target["expr"].replace("$namespace", NAMESPACE).replace("$__rate_interval", "5m")
    assert "$" not in text
    return str(text)


@contextmanager
def asked(system: System, operator: Operator, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that asks both programs, with the labels that a ServiceMonitor gives them."""
    targets = {
        f"127.0.0.1:{system.port}": {"namespace": NAMESPACE, "pod": "plugin"},
        f"127.0.0.1:{operator.port}": {"namespace": NAMESPACE, "pod": "operator"},
    }
    with Prometheus(folder, targets) as found:
        known = "interlink_plugin_orphans_cancelled_total"
        system.until(lambda: found.values(known), "the pools are seen before anything happens")
        yield found


def something_of_everything(bed: KueueBed, system: System) -> Json:
    """Pods that fail, run, wait, are refused and are nobody's; returns the one that waits."""
    failed = created(bed, system, "exit 3")
    assert system.ended(failed)[0]["exitCode"] == 3
    created(bed, system)
    waits = created(bed, system)
    with pytest.raises(Answer):
        system.plugin.create(request_of("true", pool="nowhere"))
    system.plugin.create(request_of("true"))  # Kubernetes has no such pod
    return waits


def lacking(prometheus: Prometheus, panel: Json) -> str:
    """What a panel lacks to be drawn; empty if it lacks nothing."""
    highest = 0.0
    for target in panel["targets"]:
        series = prometheus.values(query(target))
        values = [value for _, value in series if not math.isnan(value)]
        if not values:
            return f"{target['expr']}: no data"
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert all(set(labels) == named for labels, _ in series), (target, series)
        highest = max(highest, *values)
    return "" if highest > 0 or panel["title"] in QUIET else f"{panel['title']}: all is 0"


def shown(prometheus: Prometheus, panel: Json) -> None:
    """Wait until all of a panel has data."""
    end = time.monotonic() + PATIENCE_S
    while lack := lacking(prometheus, panel):
        assert time.monotonic() < end, lack
        time.sleep(0.2)


def offered(prometheus: Prometheus, variable: Json) -> None:
    """The choices of a variable are there."""
    if variable["type"] == "query":
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
        assert match is not None
        assert prometheus.label_values(match[1], match[2]) == [NAMESPACE]


def test_every_panel_shows_what_happens(
    bed: KueueBed, operator: Operator, orphans: Json, tmp_path: Path
) -> None:
    room = {"options": {"pods": 1}}
    folder = tmp_path / "system"
    folder.mkdir()
    with running(folder, plugin={"orphans": orphans}, pool=room) as system:
        system.until(lambda: knows_its_cluster(system), "Kubernetes has been asked")
        with asked(system, operator, tmp_path / "prometheus") as prometheus:
            waits = something_of_everything(bed, system)
            for panel in panels(of_deletions=False):
                shown(prometheus, panel)
            system.kill("submitter0")
            system.plugin.delete(waits)
            for panel in panels(of_deletions=True):
                shown(prometheus, panel)
            for variable in DASHBOARD["templating"]["list"]:
                offered(prometheus, variable)
