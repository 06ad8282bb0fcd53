"""A real Prometheus on loopback, which asks what a test names, again and again."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.lib.interlink import free_port
from tests.support.kueue_bed import part
from tests.support.system import Process

INTERVAL_S = 1
PATIENCE_S = 30.0


class Prometheus:
    """One with nothing in it yet."""

    def __init__(self, folder: Path, targets: Mapping[str, Mapping[str, str]]) -> None:
        """The labels that each target's figures get, by its address."""
        folder.mkdir()
        self.port = free_port()
        self._process = Process("prometheus", self._command(folder, targets), folder)

    def _command(self, folder: Path, targets: Mapping[str, Mapping[str, str]]) -> list[str]:
        asked = [{"targets": [place], "labels": labels} for place, labels in targets.items()]
        config = {
            "global": {"scrape_interval": f"{INTERVAL_S}s"},
            "scrape_configs": [{"job_name": "all", "static_configs": asked}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        return [
            str(part("prometheus") / "prometheus"),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def __enter__(self) -> Prometheus:
        self._process.start()
        end = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            assert time.monotonic() < end, self._process.log()
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def _is_ready(self) -> bool:
        """It listens before that, and then answers 503 whatever it is asked."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=10):
                return True
        except OSError:  # what urllib raises, all of it
            return False

    def values(self, query: str) -> list[tuple[dict[str, str], float]]:
        """What a query gives now: labels and value of each series."""
        data = self._ask("query", query=query)
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def label_values(self, metric: str, label: str) -> list[str]:
        """The values that a label of a metric has."""
        found: list[str] = self._ask(f"label/{label}/values", **{"match[]": metric})
        return found

    def _ask(self, path: str, **words: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
