"""The road of a create with nothing of ours on it: what the programs that we stand on cost.

    gunicorn ... tests.bench.bare_road:app    the near end: Flask, a loop in a thread, nats-py
    python -m tests.bench.bare_road FOLDER    the far end: a file for each pod, on disk

``ROAD`` in the environment is the NATS server's URL and CA file. The near end translates nothing:
it sends each body as it is, with those that came meanwhile. The far end writes each of them into a
directory of its own, waits for the disk once for all, and says so.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import ssl
import sys
import threading

import nats
from flask import Flask, request
from nats.aio.client import Client
from nats.aio.msg import Msg

SUBJECT = "bench.road"
ANSWER_S = 10.0
_BETWEEN = b"\0"  # no JSON holds it

app = Flask(__name__)


async def connected() -> Client:
    """A connection as ours are: a WebSocket with TLS."""
    url, ca_file = os.environ["ROAD"].split()
    return await nats.connect(url, tls=ssl.create_default_context(cafile=ca_file))


class NearEnd:
    """One message at a time is on its way; what comes meanwhile shares the next."""

    def __init__(self) -> None:
        self._waiting: list[tuple[bytes, threading.Lock]] = []
        self._lock = threading.Lock()
        self._is_busy = False
        self._loop = asyncio.new_event_loop()
        self._client = self._loop.run_until_complete(connected())
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def send(self, body: bytes) -> None:
        """Return when the far end has it on disk."""
        done = threading.Lock()
        done.acquire()
        with self._lock:
            self._waiting.append((body, done))
            is_first = len(self._waiting) == 1
        if is_first:
            self._loop.call_soon_threadsafe(self._go)
        done.acquire()

    def _go(self) -> None:
        if self._is_busy:
            return
        with self._lock:
            together, self._waiting = self._waiting, []
        if together:
            self._is_busy = True
            self._task = self._loop.create_task(self._carry(together))

    async def _carry(self, together: list[tuple[bytes, threading.Lock]]) -> None:
        message = _BETWEEN.join([body for body, _ in together])
        await self._client.request(SUBJECT, message, timeout=ANSWER_S)
        self._is_busy = False
        for _, done in together:
            done.release()
        self._go()


ends: list[NearEnd] = []  # the one of this worker


def post_worker_init(_worker: object) -> None:
    """After gunicorn's fork."""
    ends.append(NearEnd())


@app.post("/create")
def create() -> str:
    """What interLink is answered, once the pod is on disk."""
    body = request.get_data()
    uid = json.loads(body)["pod"]["metadata"]["uid"]
    ends[0].send(body)
    return json.dumps({"PodUID": uid, "PodJID": uid})


async def far_end(folder: str) -> None:
    """Serve until it is killed."""
    client, libc = await connected(), ctypes.CDLL(None)
    disk = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    async def keep(message: Msg) -> None:
        for body in message.data.split(_BETWEEN):
            place = f"{folder}/{json.loads(body)['pod']['metadata']['uid']}"
            os.mkdir(f"{place}.draft")
            with open(f"{place}.draft/request.json", "wb") as file:
                file.write(body)
            os.rename(f"{place}.draft", place)
        libc.syncfs(disk)
        await message.respond(b"kept")

    await client.subscribe(SUBJECT, cb=keep)
    await client.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(far_end(sys.argv[1]))
