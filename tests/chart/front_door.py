"""What condor.enabled puts behind an Ingress, as processes: OAuth2-proxy, interLink's API server.

Both with the configurations that the chart makes, but for addresses and paths; behind them the real
plugin, and a submitter that runs jobs here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

import yaml

from scripts.lib.interlink import free_port, is_up
from tests.chart.helm import CONDOR, Json, one, text_of
from tests.support.kueue_bed import part
from tests.support.oidc import Issuer
from tests.support.system import Process, System

COOKIE_SECRET = "0123456789abcdef0123456789ABCDEF"
CLIENT = CONDOR["iamClientId"]


class Answer(NamedTuple):
    """What came back."""

    status: int
    text: str


class Door:
    """Where virtual kubelets knock."""

    def __init__(
        self, system: System, issuer: Issuer, folder: Path, inner: int = 0, **oauth2_proxy: Any
    ) -> None:
        """``inner``: the port of something else than interLink."""
        self.port, self._inner = free_port(), inner or free_port()
        self._has_api = not inner
        folder.mkdir()
        values = {**CONDOR, "oauth2Proxy": {"caSecret": "ca", **oauth2_proxy}}
        made = [found for found in yaml.safe_load_all(text_of(values)) if found]
        files: Json = one(made, "ConfigMap", "il-interlink-nats-api")["data"]
        self._system = system
        api = self._write(folder, "interlink.yaml", self._api_settings(files["interlink.yaml"]))
        self._api = Process(
            "interlink",
            [str(part("interlink") / "interlink")],
            folder,
            INTERLINKCONFIGPATH=str(api),
        )
        proxy = self._write(folder, "oauth2-proxy.cfg", files["oauth2-proxy.cfg"])
        text = self._proxy_settings(files["oauth2-proxy.yaml"], issuer, folder)
        routes = self._write(folder, "oauth2-proxy.yaml", text)
        self.proxy = Process(
            "oauth2-proxy",
            [
                str(part("oauth2-proxy") / "oauth2-proxy"),
                f"--config={proxy}",
                f"--alpha-config={routes}",
            ],
            folder,
            OAUTH2_PROXY_COOKIE_SECRET=COOKIE_SECRET,
        )

    def _write(self, folder: Path, name: str, text: str) -> Path:
        path = folder / name
        path.write_text(text)
        return path

    def _api_settings(self, text: str) -> str:
        settings = yaml.safe_load(text)
        settings["InterlinkPort"] = str(self._inner)
        settings["SidecarURL"] = "http://127.0.0.1"
        settings["SidecarPort"] = str(self._system.port)
        return yaml.safe_dump(settings)

    def _proxy_settings(self, text: str, issuer: Issuer, folder: Path) -> str:
        """The chart's, with the addresses and files of here; each of them has to be there."""
        secret = self._write(folder, "client-secret", CONDOR["iamClientSecret"])
        for before, after in (
            ("0.0.0.0:4180", f"127.0.0.1:{self.port}"),
            ("127.0.0.1:3000", f"127.0.0.1:{self._inner}"),
            (CONDOR["oauth2ProxyIamIssuer"], issuer.url),
            ("/etc/interlink/oauth2-proxy/client-secret", str(secret)),
            ("/etc/interlink/ca/ca.crt", issuer.ca_file),
        ):
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        return text

    def __enter__(self) -> Door:
        if self._has_api:
            self._api.start()
        self.proxy.start()
        self._system.until(
            lambda: is_up("127.0.0.1", self._inner) and is_up("127.0.0.1", self.port),
            f"both listen: {self.proxy.log()[-2000:]}",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.stop()
        self._api.stop()

    def ask(self, method: str, path: str, token: Optional[str] = None, body: Any = None) -> Answer:
        """As a virtual kubelet does."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=130)
        headers = {"Content-Type": "application/json", "Host": CONDOR["hostname"]}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return Answer(response.status, response.read().decode(errors="replace"))


@contextlib.contextmanager
def open_door(system: System, issuer: Issuer, folder: Path, **options: Any) -> Iterator[Door]:
    """It may not say a token or a secret to anybody."""
    with Door(system, issuer, folder, **options) as door:
        yield door
    assert CONDOR["iamClientSecret"] not in door.proxy.log()
    assert COOKIE_SECRET not in door.proxy.log()
    assert not re.search(r"ey[\w-]{20,}\.ey[\w-]{20,}\.", door.proxy.log())


class Fickle:
    """An interLink that breaks a connection when a second request comes on it.

    As the real one does to a ping that comes just when it closes an idle connection, half a minute
    after the last; that moment cannot be met at will.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.port: int = self._listener.getsockname()[1]
        self.broken = 0

    def __enter__(self) -> Fickle:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the listener's end
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    if connection.recv(65536):
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                    if connection.recv(65536):
                        self.broken += 1
                        linger = struct.pack("ii", 1, 0)  # a reset, at once
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
