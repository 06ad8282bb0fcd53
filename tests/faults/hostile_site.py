"""A site's program that sends its pool's plugin what no submitter would: python -m ... URL ACT.

Each act ends with resources that say so (``DONE``), which the plugin's ping repeats, and with a job
that says so; what was sent before them has been dealt with by then.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
import zlib
from typing import Any

from templates.nats.connection import Link, Request
from templates.nats.options import LinkSettings
from templates.nats.subjects import subject

ROOT, POOL = "interlink", "hostile"
DONE = "hostile.example/done"
MIB = 1024 * 1024


def uid_of_end(act: str) -> uuid.UUID:
    """The uid of the job that ends an act."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, act)


def on(kind: str, item: str = "") -> str:
    return subject(ROOT, kind, POOL, item)


def state(message: str = "", **fields: Any) -> dict[str, Any]:
    uid = str(uuid.uuid4())
    main = {"name": "main", "kind": "main", "image": "x", "state": "waiting"}
    base = {"job": f"p-{uid}", "uid": uid, "version": [0, 0, 0], "phase": "accepted"}
    return {**base, "containers": [main], "message": message, **fields}


def states(*found: dict[str, Any], **header: Any) -> bytes:
    base = {"v": 1, "pool": POOL, "instance": "i", "number": 1, "jobs": 1, "gone": []}
    return json.dumps({**base, "states": found, **header}).encode()


def config(build: bytes) -> bytes:
    return b'{"v":1,"pool":"%s","digest":"0a","build":%s}' % (POOL.encode(), build)


class Hostile:
    """The site's connection and its acts."""

    def __init__(self, link: Link) -> None:
        self.link = link

    async def publish(self, kind: str, raw: bytes, times: int = 1) -> None:
        for _ in range(times):
            await self.link.publish_raw(on(kind), raw)
        await self.link.settle()

    async def huge_texts(self) -> None:
        """A message of 100 MB each, 100 KB on the wire."""
        for _ in range(10):
            await self.publish("status", zlib.compress(states(state("x" * 100 * MIB)), 1))

    async def many_states(self) -> None:
        """300,000 invented jobs, and long texts, in messages as large as may be."""
        for number in range(100):
            some = [state("\U0001f600" * 4000) for _ in range(30)]
            some += [state() for _ in range(3000)]
            raw = zlib.compress(states(*some, number=number), 1)
            assert len(raw) < MIB
            await self.publish("status", raw)
            await asyncio.sleep(0.1)

    async def many_values(self) -> None:
        """Lists that take far more memory than the bytes that they are written in."""
        raw = states()[:-1] + b',"x":[' + b"[]," * 30_000_000 + b"[]]}"
        await self.publish("status", zlib.compress(raw, 9), 5)

    async def host_paths(self) -> None:
        """A build configuration with 1,500,000 paths, 46 KB on the wire."""
        paths = b'{"volumes":{"host_paths":[' + b'{"path":"/a"},' * 1_500_000 + b'{"path":"/a"}]}}'
        await self.publish("config", zlib.compress(config(paths), 9), 5)

    async def resources(self) -> None:
        """Names that no node can have, far too many, and amounts beyond all counting."""
        names = ["", "kubernetes.io/", "not a name!\n", "x" * 5000]
        many = {f"hostile.example/r{number}": "1" for number in range(20_000)}
        for quotas in (dict.fromkeys(names, "1"), many, {"cpu": "9" * 64, "memory": "1e30"}):
            raw = json.dumps({"v": 1, "quotas": quotas}).encode()
            await self.publish("resources", raw[:900_000], 20)

    async def parts(self) -> None:
        """Announce 100 KB and send parts of 700 KB; announce what never comes."""
        announced = {"id": "a0", "pieces": 1000, "size": 100_000, "sha256": "0" * 64}
        for kind in ("status", "config", "resources"):
            for identity in ("a0", "b0"):
                raw = json.dumps({"v": 1, "parts": {**announced, "id": identity}}).encode()
                await self.publish(kind, raw, 200)

    async def endless_answers(self) -> None:
        """Make the plugin ask for all states, and never come to an end."""
        for number in range(60):
            await self.publish("status", states(number=100 * number))
            await asyncio.sleep(0.25)

    async def flood(self) -> None:
        """As much as the server takes, on every subject."""
        noise = [b"x", b"{}", states(), states(state()), bytes(900_000), b"\x78\x9c" + bytes(9000)]
        for _ in range(1000):
            for kind in ("status", "config", "resources"):
                for raw in noise[:4]:
                    await self.link.publish_raw(on(kind), raw)
        for _ in range(60):
            for kind in ("status", "config", "resources"):
                for raw in noise:
                    await self.link.publish_raw(on(kind), raw)
            await self.link.settle()

    async def takeover(self) -> None:
        """Speak of others' jobs, which are named on the command line."""
        for job in sys.argv[3:]:
            uid = job[-36:]
            end = {"exit_code": 1, "message": "FAKE"}
            main = {"name": "main", "kind": "main", "state": "terminated", "end": end}
            claim = state(job=job, uid=uid, phase="ended", version=[9, 3, 9], containers=[main])
            await self.publish("status", states(claim))
            await self.publish("status", states(gone=[job], number=2))
            await self.publish("status", states(claim, number=3))

    # --- what it is asked -------------------------------------------------------------------------

    async def query(self, request: Request) -> None:
        page = states(*(state() for _ in range(1000)), cursor=uuid.uuid4().hex)
        await self.link.publish_raw(request.reply, page)

    async def part(self, request: Request) -> None:
        if ".a0" in request.subject:
            await self.link.publish_raw(request.reply, bytes(700_000))


async def main(url: str, act: str) -> None:
    link = Link(LinkSettings((url,), name="hostile"), ROOT)
    hostile = Hostile(link)
    link.subscribe(on("query"), hostile.query)
    link.subscribe(on("answerparts", "*"), hostile.part)
    await link.start()
    assert await link.connected(30)
    await getattr(hostile, act)()
    uid = str(uid_of_end(act))
    end = state(job=f"end-{uid}", uid=uid)
    while True:
        quotas = {DONE: str(uid_of_end(act).node)}
        await link.publish(on("resources"), {"quotas": quotas}, compress=False)
        await link.publish_raw(on("status"), states(end, number=10**6))
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
