"""/healthz and /metrics, over HTTP."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from kueue_nats.operator import health as web
from kueue_nats.operator.health import Health
from kueue_nats.operator.metrics import Metrics
from kueue_nats.pools.tracker import restored_record
from scripts.lib.interlink import free_port
from templates.common.errors import ConfigError
from templates.protocol.publications import Resources
from tests.unit.kueue_nats.masters import SOURCE


class Page:
    """A server, and what it answers."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.metrics = Metrics()
        self.health = Health(30)
        self.listen = f"{host}:{free_port()}"
        self.server = web.serve(self.listen, self.health, self.metrics.page)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.listen}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def close(self) -> None:
        self.server.stop()


@pytest.fixture
def page() -> Iterator[Page]:
    found = Page()
    yield found
    found.close()


def test_it_is_well_until_no_round_was_finished_for_long(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert page.get("/healthz") == (200, "ok\n")
    later = time.monotonic() + 31
    monkeypatch.setattr(web.time, "monotonic", lambda: later)
    assert page.get("/healthz") == (503, "no round was finished for 31 s\n")
    page.health.beat()
    assert page.get("/healthz") == (200, "ok\n")


def test_metrics_are_there_from_the_start(page: Page) -> None:
    code, text = page.get("/metrics")
    assert code == 200
    for line in (
        'kueue_nats_rounds_total{outcome="done"} 0.0',
        'kueue_nats_rounds_total{outcome="failed"} 0.0',
        "kueue_nats_writes_total 0.0",
        "kueue_nats_leads 0.0",
        "kueue_nats_round_cpu_seconds_count 0.0",
    ):
        assert line in text


def test_a_pool_is_told_of_as_long_as_it_is_known(page: Page) -> None:
    page.metrics.set_silence(
        {(SOURCE, "p"): restored_record(Resources("p", {}), 100.0, 0.0)}, 130.0
    )
    assert 'kueue_nats_pool_silent_seconds{pool="p"} 30.0' in page.get("/metrics")[1]
    page.metrics.set_silence({}, 140.0)
    assert 'pool="p"' not in page.get("/metrics")[1]


def test_anything_else_says_what_there_is(page: Page) -> None:
    assert page.get("/")[0] == 404
    assert "/healthz and /metrics" in page.get("/x")[1]


def test_it_listens_on_ipv6() -> None:
    found = Page("[::1]")
    assert found.get("/healthz")[0] == 200
    found.close()


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "192.0.2.1:80", "no.such.host.invalid:80"])
def test_an_address_that_cannot_be_had_is_one_line(page: Page, host: str) -> None:
    taken = host.format(port=page.listen.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"listen: {taken}: "):
        web.serve(taken, page.health, page.metrics.page)
