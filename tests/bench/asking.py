"""Eight clients that ask HTTP servers in turns, and the bare Flask that ours are compared with."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.lib.interlink import free_port, is_up

REPO = Path(__file__).resolve().parents[2]
CLIENTS = 8
THREADS = 8  # of the bare Flask: one for each client


class Question(NamedTuple):
    """What the clients ask, and of whom."""

    port: int
    method: str = "GET"
    path: str = "/"
    body: str = ""


GTHREAD = ("--worker-class", "gthread", "--threads", str(THREADS), "--keep-alive", "60")


@contextlib.contextmanager
def bare_flask(
    options: Sequence[str] = GTHREAD, app: str = "tests.bench.flask_hello:app"
) -> Iterator[int]:
    """An application under gunicorn, by default as the plugin runs: its port."""
    port = free_port()
    words = ["--bind", f"127.0.0.1:{port}", "--chdir", str(REPO), "--log-level", "error", *options]
    command = [sys.executable, "-m", "gunicorn", *words, app]
    with subprocess.Popen(command) as server:
        try:
            end = time.monotonic() + 20
            while not is_up("127.0.0.1", port):
                if server.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("gunicorn did not start")
                time.sleep(0.05)
            yield port
        finally:
            server.terminate()


class Clients:
    """The process that asks."""

    def __init__(self, count: int = CLIENTS) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.bench.clients", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPO,
        )

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def rate(self, question: Question, seconds: float) -> float:
        """Answers per second."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = json.dumps({**question._asdict(), "seconds": seconds})
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the clients gave up on {question.method} {question.path}")
        return float(answer)

    def in_turns(
        self, questions: Sequence[Question], rounds: int, seconds: float
    ) -> tuple[float, ...]:
        """The median rate of each, measured in turns so that a busy moment meets all of them.

        The first round only warms up.
        """
        measured = [
            [self.rate(question, seconds) for question in questions] for _ in range(rounds + 1)
        ]
        return tuple(statistics.median(column) for column in zip(*measured[1:]))
