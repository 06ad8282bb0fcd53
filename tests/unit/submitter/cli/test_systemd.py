"""What systemd is told, heard on a real socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from submitter.cli import systemd as notify
from submitter.cli.systemd import Notifier, keep_notified
from submitter.config.settings import Supervisor, take_supervisor


class Systemd:
    """The other end."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(10)
        self.address = address

    def hear(self) -> list[str]:
        return self.socket.recv(4096).decode().split("\n")


@pytest.fixture(params=["file", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    address = str(tmp_path / "notify")
    if request.param == "abstract":
        address = f"@interlink-test-{os.getpid()}-{tmp_path.name}"
    heard = Systemd(address)
    yield heard
    heard.socket.close()


def test_it_tells_when_it_is_ready_that_it_lives_and_that_it_stops(systemd: Systemd) -> None:
    async def service() -> None:
        ready = asyncio.Event()
        words = ["waiting for NATS"]
        notifier = Notifier(Supervisor(systemd.address, 0.03))
        task = asyncio.ensure_future(keep_notified(notifier, ready.wait, lambda: words[-1]))
        hear = asyncio.get_running_loop().run_in_executor
        assert await hear(None, systemd.hear) == ["STATUS=waiting for NATS"]
        words.append("2 pools, 7 jobs")
        ready.set()
        while (heard := await hear(None, systemd.hear)) != ["READY=1", "STATUS=2 pools, 7 jobs"]:
            assert heard[0].startswith("STATUS=")  # it has taken its time
        for _ in range(3):
            assert await hear(None, systemd.hear) == ["WATCHDOG=1", "STATUS=2 pools, 7 jobs"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while (heard := await hear(None, systemd.hear)) != ["STOPPING=1"]:
            assert heard[0] == "WATCHDOG=1"

    asyncio.run(service())


def test_it_says_why_it_is_not_ready_yet(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "WAITING_PAUSE_S", 0.01)

    async def service() -> None:
        words = ["not connected yet"]
        notifier = Notifier(Supervisor(systemd.address))
        task = asyncio.ensure_future(
            keep_notified(notifier, asyncio.Event().wait, lambda: words[-1])
        )
        hear = asyncio.get_running_loop().run_in_executor
        assert await hear(None, systemd.hear) == ["STATUS=not connected yet"]
        words.append("the server refuses us")
        while (heard := await hear(None, systemd.hear)) != ["STATUS=the server refuses us"]:
            assert heard == ["STATUS=not connected yet"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while (heard := await hear(None, systemd.hear)) != ["STOPPING=1"]:
            assert heard == ["STATUS=the server refuses us"]

    asyncio.run(service())


def test_a_service_that_cannot_become_ready_ends(systemd: Systemd) -> None:
    async def never() -> None:
        raise OSError("never")

    async def service() -> None:
        with pytest.raises(OSError, match="never"):
            await keep_notified(Notifier(Supervisor(systemd.address)), never, lambda: "x")
        hear = asyncio.get_running_loop().run_in_executor
        assert await hear(None, systemd.hear) == ["STATUS=x"]
        assert await hear(None, systemd.hear) == ["STOPPING=1"]

    asyncio.run(service())


def test_a_line_end_cannot_smuggle_in_a_state(systemd: Systemd) -> None:
    Notifier(Supervisor(systemd.address)).status("x\nREADY=1")
    assert systemd.hear() == ["STATUS=x READY=1"]


def test_a_file_says_what_it_is_doing_and_grows_old_when_it_does_nothing(tmp_path: Path) -> None:
    file = tmp_path / "status"

    async def service() -> None:
        ready = asyncio.Event()
        words = ["no connection to NATS: not yet"]
        notifier = Notifier(Supervisor("", 0.03, str(file)))
        task = asyncio.ensure_future(keep_notified(notifier, ready.wait, lambda: words[-1]))
        await reads(file, "no connection to NATS: not yet")
        ready.set()
        words.append("connected;\n7 jobs")
        await reads(file, "connected; 7 jobs")
        before = file.stat().st_mtime_ns
        while file.stat().st_mtime_ns == before:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(service(), 20))
    assert [entry.name for entry in tmp_path.iterdir()] == ["status"]


async def reads(file: Path, words: str) -> None:
    while not file.exists() or file.read_text() != f"{words}\n":
        await asyncio.sleep(0)


def test_a_file_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    Notifier(Supervisor("", 0, str(tmp_path / "nowhere" / "status"))).status("x")


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "@interlink-nobody"])
def test_nobody_there_is_no_trouble(address: str) -> None:
    Notifier(Supervisor(address)).send("READY=1")


def test_a_full_socket_is_no_trouble(systemd: Systemd) -> None:
    notifier = Notifier(Supervisor(systemd.address))
    for _ in range(10_000):
        notifier.send("WATCHDOG=1")
    assert systemd.hear() == ["WATCHDOG=1"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Supervisor()),
        ({"NOTIFY_SOCKET": "/run/x"}, Supervisor("/run/x", 0)),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000"}, Supervisor("/x", 30)),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, Supervisor("", 30)),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, Supervisor()),
        ({"WATCHDOG_USEC": "soon"}, Supervisor()),
        ({"INTERLINK_STATUS_FILE": "/tmp/status"}, Supervisor("", 0, "/tmp/status")),
    ],
)
def test_the_environment_is_read_once_and_emptied(
    environment: dict[str, str], expected: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "INTERLINK_STATUS_FILE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert take_supervisor() == expected
    assert not set(names) & set(os.environ)
