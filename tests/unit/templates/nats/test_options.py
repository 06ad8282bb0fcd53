"""Every way to reach NATS and to prove who one is, against the real server."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nkeys
import pytest

from templates.common.errors import ConfigError
from templates.nats.connection import Link
from templates.nats.options import LinkSettings, connect_options, read_secret
from tests.support.nats_jwt import identity
from tests.support.nats_server import NatsServer

SECRET = "hunter2-hunter2"
MISFITS = ("hunter\r\nPUB x 0\r\n", "hunter\0", "hünter", "hunter'\"}{\\")


def trouble_with(settings: LinkSettings) -> str:
    """Connect and ask the server for something; what keeps that from working, or nothing."""

    async def attempt() -> str:
        link = Link(settings, "interlink")
        before = link.error
        await link.start()
        try:
            while not link.is_connected:
                if link.error != before:
                    return link.error
                await asyncio.sleep(0.01)
            await link.publish("interlink.hello", {})
            await link.settle()
            return ", ".join(link.server_errors)
        finally:
            await link.stop()

    return asyncio.run(asyncio.wait_for(attempt(), 30))


class Server:
    """A server that lets a user in by its password, over plain and TLS connections."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.nats = NatsServer(folder / "server", **options).start()
        self.secret = folder / "secret"

    def settings(self, *servers: str, secret: str = SECRET, **options: Any) -> LinkSettings:
        self.secret.write_text(f"{secret}\n")
        return LinkSettings(servers or (self.nats.url,), ca_file=self.nats.ca_file, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def by_password(folder: Path) -> Iterator[Server]:
    server = Server(folder, authorization={"users": [{"user": "me", "password": SECRET}]})
    yield server
    server.nats.stop()


def test_a_password(by_password: Server) -> None:
    options = {"user": "me", "password_file": str(by_password.secret)}
    assert trouble_with(by_password.settings(**options)) == ""
    wrong = trouble_with(by_password.settings(secret="hunter3", **options))
    assert "authorization violation" in wrong.lower()
    assert "hunter3" not in wrong
    nobody = trouble_with(by_password.settings(user="you", password_file=options["password_file"]))
    assert "authorization violation" in nobody.lower()
    assert "authorization violation" in trouble_with(by_password.settings()).lower()


def test_a_password_that_is_known_already(
    by_password: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    nats = by_password.nats
    for url in (nats.url, nats.websocket_url):
        good = by_password.settings(url, user="me", password=SECRET)
        assert trouble_with(good) == ""
        assert "authorization" in trouble_with(good._replace(password="hunter3")).lower()
    for broken in (*MISFITS, "hunter3"):
        wrong = LinkSettings((nats.url,), user="me", password=broken)
        trouble = trouble_with(wrong)
        assert trouble
        assert broken not in trouble
    for secret in (SECRET, *MISFITS, "hunter3"):
        assert secret not in caplog.text


def test_the_file_of_a_password_wins_over_a_password(by_password: Server) -> None:
    options = {"user": "me", "password_file": str(by_password.secret)}
    assert trouble_with(by_password.settings(**options, password="hunter3")) == ""
    neither = trouble_with(LinkSettings((by_password.nats.url,), user="me"))
    assert "authorization" in neither.lower()


@pytest.mark.parametrize("user", ["", "me"])
def test_a_password_is_never_shown(user: str) -> None:
    settings = LinkSettings(("wss://x",), user=user, password=SECRET)
    for text in (repr(settings), str(settings), f"{settings}", str([settings])):
        assert SECRET not in text
        assert "wss://x" in text
    assert "password='***'" in repr(settings)
    assert "password=''" in repr(LinkSettings(("wss://x",)))
    assert SECRET not in repr(settings._replace(name="other"))


def test_an_error_beside_a_password_does_not_tell_it(tmp_path: Path) -> None:
    settings = LinkSettings(("wss://x",), user="me", password=SECRET, ca_file=f"{tmp_path}/no")
    with pytest.raises(ConfigError) as caught:
        connect_options(settings)
    report = pytest.ExceptionInfo.from_exception(caught.value).getrepr(showlocals=False)
    assert SECRET not in str(report)


def test_a_token(folder: Path) -> None:
    server = Server(folder, authorization={"token": SECRET})
    try:
        options = {"token_file": str(server.secret)}
        assert trouble_with(server.settings(**options)) == ""
        assert "authorization" in trouble_with(server.settings(secret="x", **options)).lower()
    finally:
        server.nats.stop()


def test_an_nkey(folder: Path) -> None:
    seeds = [nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER) for _ in range(2)]
    public = nkeys.from_seed(bytearray(seeds[0])).public_key.decode()
    server = Server(folder, authorization={"users": [{"nkey": public}]})
    try:
        options = {"nkey_file": str(server.secret)}
        good, other = (seed.decode() for seed in seeds)
        assert trouble_with(server.settings(secret=good, **options)) == ""
        assert "authorization" in trouble_with(server.settings(secret=other, **options)).lower()
        for broken in (SECRET, good[:-1], "", public, "SU" + "A" * 56):
            trouble = trouble_with(server.settings(secret=broken, **options))
            assert trouble
            assert not broken or broken not in trouble
    finally:
        server.nats.stop()


def test_credentials_by_jwt(folder: Path) -> None:
    who, other = identity(), identity()
    server = Server(folder, **who.server)
    try:
        options = {"credentials_file": str(server.secret)}
        assert trouble_with(server.settings(secret=who.credentials, **options)) == ""
        trouble = trouble_with(server.settings(secret=other.credentials, **options))
        assert "authorization" in trouble.lower()
        for broken in (SECRET, "", who.credentials[:300], who.credentials.replace("SU", "XX")):
            trouble = trouble_with(server.settings(secret=broken, **options))
            assert trouble
            assert SECRET not in trouble
            assert "SU" not in trouble
    finally:
        server.nats.stop()


@pytest.mark.parametrize("scheme", ["nats", "wss"])
def test_plain_and_websocket(by_password: Server, scheme: str) -> None:
    urls = {"nats": by_password.nats.url, "wss": by_password.nats.websocket_url}
    options = {"user": "me", "password_file": str(by_password.secret)}
    assert trouble_with(by_password.settings(urls[scheme], **options)) == ""


def test_websockets_without_tls(folder: Path) -> None:
    server = NatsServer(folder / "server")
    server.configure(websocket={"host": "127.0.0.1", "port": server.websocket_port, "no_tls": True})
    server.start()
    try:
        url = f"ws://127.0.0.1:{server.websocket_port}"
        assert trouble_with(LinkSettings((url,))) == ""
        assert trouble_with(LinkSettings((url.replace("ws:", "wss:"),), ca_file=server.ca_file))
    finally:
        server.stop()


def test_tls(folder: Path) -> None:
    at = folder / "server"
    server = NatsServer(at, tls={"cert_file": f"{at}/cert.pem", "key_file": f"{at}/key.pem"})
    server.start()
    try:
        url = f"tls://localhost:{server.port}"
        assert trouble_with(LinkSettings((url,), ca_file=server.ca_file)) == ""
        assert "CERTIFICATE_VERIFY_FAILED" in trouble_with(LinkSettings((url,)))
    finally:
        server.stop()


def test_a_certificate_must_be_of_a_known_ca(by_password: Server) -> None:
    url = by_password.nats.websocket_url
    trouble = trouble_with(LinkSettings((url,)))
    assert "CERTIFICATE_VERIFY_FAILED" in trouble


def test_tls_is_never_given_up_for_a_plain_connection(by_password: Server) -> None:
    """Neither a TLS URL on a plain port nor a plain URL on a TLS port connects."""
    plain, websocket = by_password.nats.port, by_password.nats.websocket_port
    options = {"user": "me", "password_file": str(by_password.secret)}
    for url in (f"tls://localhost:{plain}", f"wss://localhost:{plain}"):
        assert trouble_with(by_password.settings(url, **options))
    assert trouble_with(by_password.settings(f"ws://localhost:{websocket}", **options))


def test_the_first_server_that_works_is_taken(by_password: Server) -> None:
    options = {"user": "me", "password_file": str(by_password.secret)}
    servers = ("nats://127.0.0.1:1", "wss://127.0.0.1:2", by_password.nats.url)
    assert trouble_with(by_password.settings(*servers, **options)) == ""


@pytest.mark.parametrize("key", ["password_file", "token_file", "nkey_file", "credentials_file"])
def test_a_secret_that_cannot_be_read_is_named_by_its_file(tmp_path: Path, key: str) -> None:
    for name, words in (("nothing", "No such file or directory"), ("noise", "is not text")):
        (tmp_path / "noise").write_bytes(b"\xff\xfe\xff")
        path = str(tmp_path / name)
        settings = LinkSettings(("nats://127.0.0.1:1",), user="me")._replace(**{key: path})
        if key != "password_file":
            settings = settings._replace(user="")
        with pytest.raises(ConfigError) as caught:
            connect_options(settings)
        assert str(caught.value) == f"nats.{key}: {path}: {words}"
        assert trouble_with(settings) == str(caught.value)


@pytest.mark.parametrize("content", [None, "hunter2"])
def test_a_ca_file_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        connect_options(LinkSettings(("wss://x",), ca_file=str(path)))
    assert str(caught.value).startswith(f"nats.ca_file: {path}: ")
    assert "hunter2" not in str(caught.value)


def test_a_secret_is_what_is_left_without_white_space(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("  hunter2 \n\n")
    assert read_secret("token_file", str(tmp_path / "s")) == "hunter2"


def test_a_plain_connection_needs_no_certificates() -> None:
    assert "tls" not in connect_options(LinkSettings(("nats://x", "ws://y")))
