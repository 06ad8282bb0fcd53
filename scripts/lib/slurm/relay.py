"""The way from a Slurm site's border to a port of this machine.

    python -m scripts.lib.slurm.relay PID ADDRESS PORT FILE

Listens on ADDRESS:PORT in the network of process PID, and passes what comes on to the HOST:PORT
that stands in FILE when somebody connects, as seen from the network that this was started in.
Nobody is let in while there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
from pathlib import Path

from scripts.lib.slurm.enter import libc

CHUNK = 1 << 18


def listener(pid: int, address: str, port: int) -> socket.socket:
    """A socket in another network; this process itself stays where it is."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if libc.setns(there, 0) != 0:
        raise OSError("the network cannot be entered")
    made = socket.create_server((address, port), backlog=128)
    if libc.setns(home, 0) != 0:
        raise OSError("there is no way back")
    os.close(there)
    os.close(home)
    return made


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction of a connection, to its end."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    # A reset, too, is the end: a program that was killed with something left to read sends one.
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


async def serve(pid: int, address: str, port: int, file: Path) -> None:
    """Until this process is killed."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            host, _, number = file.read_text().rpartition(":")
            there = await asyncio.open_connection(host, int(number), limit=CHUNK)
        except (OSError, ValueError):
            at_once = struct.pack("ii", 1, 0)  # a reset: what a port says that nobody listens on
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            writer.transport.abort()
            return
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
        for end in (writer, there[1]):
            end.close()

    server = await asyncio.start_server(accept, sock=listener(pid, address, port), limit=CHUNK)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
