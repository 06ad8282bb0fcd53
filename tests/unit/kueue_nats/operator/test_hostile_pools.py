"""What a site with a credential can cost the operator, which hears all pools: a real server."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugin_server.nats.bridge import Bridge
from templates.nats import codec
from templates.nats.connection import Link
from templates.nats.options import LinkSettings
from templates.protocol import publications
from templates.protocol.publications import Resources
from tests.support.nats_server import NatsServer
from tests.unit.submitter.rig import eventually

pytestmark = pytest.mark.security

REPO = Path(__file__).resolve().parents[4]
MIB = 1024 * 1024
GPU = "nvidia.com/gpu"


class OperatorProcess:
    """The operator, and what it tells."""

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.kueue_nats.operator_process", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPO,
        )

    def told(self) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def pool(self, name: str) -> dict[str, Any]:
        pools = self.told()["status"].get("pools") or ()
        return next((pool for pool in pools if pool["name"] == name), {})

    def memory(self, which: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(which))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Sites:
    """Sites that publish on the real server, whatever they like."""

    def __init__(self, url: str) -> None:
        self._bridge = Bridge()
        self._bridge.start()
        self._link = Link(LinkSettings((url,), name="sites"), "interlink")
        self._bridge.call(self._link.start(), 10)
        assert self._bridge.call(self._link.connected(20), 30)

    def say(self, pool: str, *raws: bytes) -> None:
        async def publish() -> None:
            for number, raw in enumerate(raws):
                await self._link.publish_raw(f"interlink.resources.{pool}", raw)
                if number % 100 == 0:
                    await self._link.settle()
            await self._link.settle()

        self._bridge.call(publish(), 120)

    def offer(self, pool: str, **quotas: object) -> None:
        self.say(pool, offered(quotas))

    def close(self) -> None:
        self._bridge.call(self._link.stop(), 30)
        self._bridge.stop()


def offered(quotas: dict[str, Any], **more: Any) -> bytes:
    texts = {name: str(amount) for name, amount in quotas.items()}
    message = publications.write_resources(Resources("bad", texts, **more))
    return codec.encode(message, compress=False)


@pytest.fixture(scope="module")
def sites(nats: NatsServer) -> Iterator[Sites]:
    found = Sites(nats.url)
    yield found
    found.close()


@pytest.fixture(scope="module")
def operator(nats: NatsServer) -> Iterator[OperatorProcess]:
    found = OperatorProcess(nats.url)
    yield found
    found.close()


# --- attacks --------------------------------------------------------------------------------------


def large_labels() -> list[bytes]:
    return [zlib.compress(offered({"cpu": 1}, labels=("k=" + "x" * 50_000_000,)))] * 3


def many_labels() -> list[bytes]:
    return [zlib.compress(offered({"cpu": 1}, labels=("k=v",) * 500_000))] * 3


def many_names() -> list[bytes]:
    return [offered({f"a.example/{number}": 1 for number in range(12_000)})] * 20


def compressed_names() -> list[bytes]:
    return [zlib.compress(offered({f"a{number}": 1 for number in range(200_000)}))] * 3


def large_amounts() -> list[bytes]:
    return [offered({"cpu": "1e30", "memory": "9" * 64, GPU: "1E"})] * 100


def parts_that_never_come() -> list[bytes]:
    return [
        codec.write_announcement(codec.Parts(f"{number:032}", 128, 128 * MIB, "0" * 64))
        for number in range(2_000)
    ]


def garbage() -> list[bytes]:
    return [b"\x00" * 500_000, b"{" * 200_000, b"x\x9c" + b"\xff" * 1000] * 100


def changes() -> list[bytes]:
    names = [f"a.example/{number:02}" for number in range(64)]
    return [offered(dict.fromkeys(names, number)) for number in range(500)]


def other_names() -> list[bytes]:
    return [
        offered({f"a.example/{number}-{name}": name for name in range(64)}) for number in range(300)
    ]


@pytest.mark.parametrize(
    "attack",
    [
        large_labels,
        many_labels,
        many_names,
        compressed_names,
        large_amounts,
        parts_that_never_come,
        garbage,
        changes,
        other_names,
    ],
)
def test_a_pool_that_means_harm_costs_little_and_others_keep_what_they_offer(
    operator: OperatorProcess, sites: Sites, attack: Callable[[], list[bytes]]
) -> None:
    def is_known() -> bool:
        sites.offer("good", **{"cpu": 4, GPU: 8})
        return bool(operator.pool("good").get("effective", {}).get(GPU) == "8")

    eventually(is_known, 60)
    before = operator.memory("VmRSS:")
    Path(f"/proc/{operator.process.pid}/clear_refs").write_text("5")
    sites.say("bad", *attack())
    sites.offer("good", **{"cpu": 4, GPU: 7})
    eventually(lambda: operator.pool("good").get("effective", {}).get(GPU) == "7", 60)
    assert operator.memory("VmHWM:") - before < 100 * MIB
    eventually(lambda: operator.memory("VmRSS:") - before < 40 * MIB, 60)
    told = operator.told()
    quotas = {
        resource["name"]: resource["nominalQuota"]
        for flavor in told["queues"]["mq"]["spec"]["resourceGroups"][0]["flavors"]
        if flavor["name"] == "mq.g.good"
        for resource in flavor["resources"]
    }
    assert quotas[GPU] in ("7", "7.0")
    assert len(quotas) <= 64
    assert len(json.dumps(told["status"])) < 40_000
    assert len(json.dumps(told["flavors"].get("mq.g.bad", {}))) < 20_000
