"""The rival of ``logs``: answers each request with eight chunks that it has in memory.

python -m tests.bench.bare_stream URL CA_FILE CHUNK_BYTES
"""

from __future__ import annotations

import asyncio
import ssl
import sys

import nats
from nats.aio.msg import Msg


async def main(url: str, ca_file: str, size: int) -> None:
    """Serve until it is killed."""
    client = await nats.connect(url, tls=ssl.create_default_context(cafile=ca_file))
    chunk = b"x" * size

    async def answer(message: Msg) -> None:
        for _ in range(8):
            await client.publish(message.reply, chunk)

    await client.subscribe("bench.stream", cb=answer)
    await client.flush()
    await client.flush()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
