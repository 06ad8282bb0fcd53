"""Many jobs with known ends, watched as the virtual kubelet would watch them."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

from scripts.lib.interlink import Answer, Plugin
from tests.support.system import System, job_of, request_of
from tests.unit.plugin_server.virtual_kubelet import VirtualKubelet

CREATORS = 8
STUCK_S = 180  # longer than any time-out of any program
UNSURE = (OSError, http.client.HTTPException)


class Watched:
    """A job, what it must come to, and what was ever reported of it."""

    def __init__(self, number: int, runs: Path) -> None:
        self.code = number % 7
        self.output = f"job {number}\n".encode()
        command = (
            f"echo $HOSTNAME >>{runs}/{number}; echo job {number}; sleep 0.{number % 10}; "
            f"exit {self.code}"
        )
        self.number = number
        self.request: dict[str, Any] = request_of(command)
        self.pod: dict[str, Any] = self.request["pod"]
        self.kubelet = VirtualKubelet({"status": {"phase": "Pending"}, **self.pod})
        self.reported: list[str] = []
        self.message = ""  # of its end
        self.refused = ""

    def saw(self, status: dict[str, Any]) -> None:
        self.kubelet.take([status])
        (container,) = status["containers"]
        state = container["state"]
        kind = next(iter(state))
        text = kind
        if kind == "terminated":
            text = f"terminated {state['terminated']['exitCode']}"
            self.message = state["terminated"].get("message", "")
        if not self.reported or self.reported[-1] != text:
            self.reported.append(text)

    @property
    def has_ended(self) -> bool:
        return bool(self.reported) and self.reported[-1].startswith("terminated")

    def wrong(self) -> Optional[str]:
        """What is wrong with the states that were reported; None if nothing is."""
        fine = [word for word in ("waiting", "running") if word in self.reported]
        fine.append(f"terminated {self.code}")
        if self.refused or self.reported != fine:
            words = f"{self.refused}{self.message}"
            return f"{job_of(self.pod)}: {self.reported}, not {fine}: {words}"
        return None


class Crowd:
    """Creates the jobs from several threads and polls them in turn, until all have ended.

    Of a job that is excused only this is asked, that it did not run twice.
    """

    def __init__(
        self,
        system: System,
        count: int,
        runs: Path,
        is_excused: Callable[[Watched], bool] = lambda job: False,
    ) -> None:
        self.system = system
        self._is_excused = is_excused
        self.runs = runs  # a folder where each job leaves a line whenever it runs
        self.jobs = [Watched(number, self.runs) for number in range(count)]
        self._waiting = list(reversed(self.jobs))
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._created: list[Watched] = []

    def start(self) -> Sequence[threading.Thread]:
        threads = [threading.Thread(target=self._create, daemon=True) for _ in range(CREATORS)]
        threads.append(threading.Thread(target=self._poll, daemon=True))
        for thread in threads:
            thread.start()
        return threads

    def _create(self) -> None:
        with Plugin("127.0.0.1", self.system.port) as plugin:
            while True:
                with self._lock:
                    if not self._waiting:
                        return
                    job = self._waiting.pop()
                self._create_one(plugin, job)
                with self._lock:
                    self._created.append(job)

    def _create_one(self, plugin: Plugin, job: Watched) -> None:
        """As often as it takes: a plugin that dies has said nothing."""
        while not self._over.is_set():
            try:
                plugin.create(job.request)
                return
            except Answer as refused:
                job.refused = str(refused)
                return
            except UNSURE:
                time.sleep(0.05)

    def _poll(self) -> None:
        with Plugin("127.0.0.1", self.system.port) as plugin:
            while not self._over.wait(0.05):
                with self._lock:
                    alive = [job for job in self._created if not job.has_ended and not job.refused]
                for job in alive:
                    self._poll_one(plugin, job)

    @staticmethod
    def _poll_one(plugin: Plugin, job: Watched) -> None:
        try:
            for status in plugin.status([job.kubelet.pod]):
                job.saw(status)
        except UNSURE:
            time.sleep(0.05)

    @property
    def progress(self) -> int:
        """A number that grows whenever a job is taken, begins or ends."""
        return len(self._created) + sum(len(job.reported) for job in self.jobs)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for as long as anything moves: how fast that is, is the machine's affair."""
        seen, end = -1, 0.0
        while not holds():
            if self.progress != seen:
                seen, end = self.progress, time.monotonic() + STUCK_S
            words = f"nothing has moved for {STUCK_S} s, and not yet: {what}"
            assert time.monotonic() < end, f"{words}\n{self.system.logs()}"
            time.sleep(0.1)

    def until_most_have_ended(self) -> None:
        """For as long as faults are worth causing."""
        most = 0.95 * len(self.jobs)
        self._until(lambda: sum(job.has_ended for job in self.jobs) >= most, "most have ended")

    def finish(self, threads: Sequence[threading.Thread]) -> None:
        """Wait until everything has ended; then nothing may be wrong, and all ran exactly once."""
        try:
            self._until(
                lambda: all(job.has_ended or job.refused for job in self.jobs), "all have ended"
            )
        except AssertionError as late:
            left = [f"{job_of(j.pod)} {j.reported}" for j in self.jobs if not j.has_ended]
            raise AssertionError(f"{len(left)} have not ended: {left[:5]}\n{late}") from None
        finally:
            self._over.set()
        for thread in threads:
            thread.join(10)
        held = [job for job in self.jobs if not self._is_excused(job)]
        wrong = [said for job in held if (said := job.wrong())]
        assert not wrong, "\n".join(wrong)
        ran = {path.name: len(path.read_text().splitlines()) for path in self.runs.iterdir()}
        odd = {job.number: ran.get(str(job.number), 0) for job in held}
        odd = {number: count for number, count in odd.items() if count != 1}
        odd.update({int(name): count for name, count in ran.items() if count > 1})
        assert not odd, f"so often did jobs run: {odd}"

    def check_logs(self) -> None:
        for job in self.jobs:
            if self._is_excused(job):
                continue
            log = self.system.log(job.pod)
            assert log == job.output, f"{job_of(job.pod)}: {log!r}, not {job.output!r}"
