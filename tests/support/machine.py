"""A machine of its own, booted by a real systemd: what an admin's login node is to the submitter.

    with Machine(tmp_path / "machine") as machine:
        machine.run("systemctl", "start", "interlink-submitter")

Its root is this machine's, under a layer in memory that goes with it. It has namespaces of its own
for mounts, processes, network, IPC, names and control groups, and devices of its own: nothing that
its systemd does is seen outside. It ends with whoever has started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Optional

from tests.support.nats_server import NatsServer, program
from tests.support.sources import REPO
from tests.unit.submitter.rig import Centre, eventually

SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER = "interlink"
SPACES = ("mount", "pid", "uts", "ipc", "net", "cgroup")

SOURCE = "/srv/interlink-nats"  # where the machine has this checkout
DATA = Path(__file__).parents[1] / "data"
PREPARE, BOOT = (DATA / f"machine-{part}.sh" for part in ("root", "boot"))


class Machine:
    """One machine, with the submitter installed by scripts/install-submitter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir()
        self.log = folder.with_suffix(".log")
        self._cgroup = Path(_cgroup_mount(), f"interlink-machine-{os.getpid()}")
        self._process: Optional[subprocess.Popen[bytes]] = None
        self.pid = 0  # of its systemd, as seen from here

    def __enter__(self) -> Machine:
        self._folder.chmod(0o755)
        words = (self._folder, REPO, SOURCE, sys.base_prefix, self._cgroup, USER, BOOT)
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation"]
        command += ["private", "bash", str(PREPARE), *map(str, words)]
        search = f"{os.environ['PATH']}:{SEARCH}"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": search},
            )
        try:
            self.pid = eventually(self._systemd, 900, "systemd is there")
            eventually(self._is_up, 60, "systemd is up")
        except AssertionError as error:
            self.__exit__()
            raise AssertionError(f"{error}\n{self.log.read_text(errors='replace')}") from None
        return self

    def _systemd(self) -> int:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text(errors="replace")
        own = self._process.pid
        for child in Path(f"/proc/{own}/task/{own}/children").read_text().split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                    return int(child)
        return 0

    def _is_up(self) -> bool:
        return self.try_to("systemctl", "is-active", "sysinit.target").stdout == "active\n"

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if self._cgroup.exists():
            eventually(self._is_empty, 30, "all of its processes have gone")
            for place, _folders, _files in os.walk(self._cgroup, topdown=False):
                Path(place).rmdir()

    def _is_empty(self) -> bool:
        return "populated 0" in (self._cgroup / "cgroup.events").read_text()

    # --- inside -------------------------------------------------------------------------------

    def _entering(self, *spaces: str) -> list[str]:
        return ["nsenter", f"--target={self.pid}", *(f"--{space}" for space in spaces)]

    def try_to(self, *command: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """What a command of the machine's root says, and its exit code."""
        return subprocess.run(
            [*self._entering(*SPACES), "env", "-i", f"PATH={SEARCH}", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    def run(self, *command: str, seconds: float = 60) -> str:
        """What a command says that has to succeed."""
        done = self.try_to(*command, seconds=seconds)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.journal()}"
        return done.stdout

    def journal(self) -> str:
        """What the submitter has said, and systemd of it."""
        unit = "interlink-submitter"
        return self.try_to("journalctl", "--no-pager", "--output=cat", "--unit", unit).stdout

    def write(self, path: str, content: str) -> None:
        """A file of root's that everybody may read."""
        place = Path(f"/proc/{self.pid}/root{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        place.chmod(0o644)

    def at(self, path: str) -> Path:
        """A place in the machine, as seen from here."""
        return Path(f"/proc/{self.pid}/root{path}")

    def nats(self, folder: Path) -> NatsServer:
        """A nats-server on the machine's own loopback."""
        return _Inside(folder, self._entering("net"))

    def centre(self, nats: NatsServer) -> Centre:
        """The other end, connected from within the machine's network."""
        return _CentreInside(nats, f"/proc/{self.pid}/ns/net")


class _Inside(NatsServer):
    def __init__(self, folder: Path, entering: list[str]) -> None:
        super().__init__(folder)
        self._entering = entering

    def start(self) -> NatsServer:
        config = str(self.folder / "nats.conf")
        with (self.folder / "nats.log").open("ab") as log:
            command = [*self._entering, program(), "--config", config]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(lambda: "Server is ready" in self.log(), 20, "nats-server is ready")
        return self


class _CentreInside(Centre):
    def __init__(self, nats: NatsServer, network: str) -> None:
        self._network = network
        super().__init__(nats)

    async def _connection(self, url: str) -> object:  # type: ignore[override]
        """Called in the thread of the loop, whose sockets are from now on of that network."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open(self._network, "rb") as network:
            assert libc.setns(network.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
        return await super()._connection(url)


def _cgroup_mount() -> str:
    """Where control groups of the second kind are."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return place
    raise AssertionError("no control groups of version 2 are mounted here")
