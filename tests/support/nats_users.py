"""The real nats-server with the users that scripts/nats-site makes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from scripts.lib.interlink import free_port
from templates.cli import nats_site
from templates.nats import permissions
from templates.nats.connection import Link
from templates.nats.options import LinkSettings
from tests.support.nats_server import NatsServer


class Site:
    """A server, and the directory that nats-site keeps for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "nats"
        self.server = NatsServer(folder / "server")
        cert, key = folder / "server" / "cert.pem", folder / "server" / "key.pem"
        options = ["--cert", str(cert), "--key", str(key)]
        options += ["--url", self.server.websocket_url]
        options += ["--port", str(self.server.websocket_port)]
        options += ["--listen", f"127.0.0.1:{self.server.port}"]
        self.monitor = f"127.0.0.1:{free_port()}"
        self("init", str(self.folder), *options, "--monitor", self.monitor)
        # Includes are looked for beside the file that has them, whatever they look like.
        (folder / "server" / "nats.conf").write_text('include "../nats/nats-server.conf"\n')

    def __call__(self, *words: str, opens: bool = True) -> None:
        """Run a command; a site that is added is opened, as if the server had reloaded between."""
        place = [] if words[0] == "init" else ["--dir", str(self.folder)]
        assert nats_site.main([*words, *place]) == 0
        if words[0] == "add" and opens:
            assert nats_site.main(["open", words[1], *place]) == 0

    def seed_file(self, name: str) -> str:
        return str(self.folder / "credentials" / f"{name}.nkey")

    def link(self, name: str) -> Link:
        settings = LinkSettings(
            servers=(self.server.websocket_url,),
            name=name,
            inbox_prefix=permissions.inbox_of(name),
            nkey_file=self.seed_file(name),
            ca_file=self.server.ca_file,
        )
        return Link(settings, "interlink")


@contextlib.asynccontextmanager
async def started(*links: Link) -> AsyncIterator[None]:
    try:
        for link in links:
            await link.start()
        for link in links:
            assert await link.connected(20), link.error
        yield
    finally:
        for link in links:
            await link.stop()
