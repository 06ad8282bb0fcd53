"""Tokens of some seconds, and an issuer that changes its keys, under jobs that come all the time.

``HTCONDOR_TOKENS_S`` says for how long they come.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from templates.job.model import Job
from templates.job.status import ENDED
from tests.sites.htcondor.at_an_element import *  # noqa: F403 - its fixtures are used here
from tests.sites.htcondor.element import LIFETIME_S, REFRESH, Element, users_file
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, Submitter, eventually, job_of

SECONDS = float(os.environ.get("HTCONDOR_TOKENS_S", "90"))
REPLICAS = 3
AT_ONCE = 6  # jobs that are under way
NO_TOKEN = re.compile(r"no valid token|is not renewed|[Aa]uthenticat|Couldn't contact")


class Known(NamedTuple):
    """A job, and the exit code that it must come to."""

    job: Job
    code: int


class Stream:
    """Jobs that come one after the other, each of which leaves a line whenever it runs."""

    def __init__(self, centre: Centre, runs: Path) -> None:
        self._centre, self._runs = centre, runs
        self.jobs: list[Known] = []

    def until(self, end: float) -> None:
        """Keep some jobs under way until this time."""
        left: list[Known] = []
        while time.monotonic() < end:
            while len(left) < AT_ONCE:
                left.append(self._create())
            left = [known for known in left if not self._has_ended(known)]
            time.sleep(0.2)

    def _create(self) -> Known:
        number = len(self.jobs)
        script = f"echo ran >>{self._runs}/{number}; sleep {number % 3}; exit {number % 7}"
        known = Known(job_of(script), number % 7)
        assert self._centre.insist(known.job) == "journaled"
        self.jobs.append(known)
        return known

    def _has_ended(self, known: Known) -> bool:
        heard = self._centre.heard.get(known.job.name)
        return bool(heard) and heard[-1].phase == ENDED

    def check(self) -> None:
        """All of them have ended as they must, after one run."""
        wrong = {}
        for number, known in enumerate(self.jobs):
            code = self._centre.ended(known.job.name).exit_code
            ran = len((self._runs / str(number)).read_text().splitlines())
            if (code, ran) != (known.code, 1):
                wrong[number] = (code, known.code, ran)
        assert not wrong
        told = [
            container.state.message
            for states in self._centre.heard.values()
            for status in states
            for container in status.containers
        ]
        assert [words for words in told if NO_TOKEN.search(words)] == []


def complaints(*submitters: Submitter) -> list[str]:
    lines = (line for one in submitters for line in one.words().splitlines())
    return [line for line in lines if NO_TOKEN.search(line)]


def test_three_submitters_share_tokens_of_some_seconds(
    start: Start,
    centre: Centre,
    the_element: Element,
    tmp_path: Path,
    home: Path,
    options: dict[str, Any],
) -> None:
    """The issuer takes a refresh token once: whoever asks with an old one is refused."""
    before = len(the_element.asked())
    seed = users_file(home / "refresh.token", REFRESH)
    tokens = {**options["tokens"], "refresh_token_file": str(seed)}
    pool = {"backend": "htcondor", "options": {"tokens": tokens}}
    replicas = [start(**pool) for _ in range(REPLICAS)]
    stream = Stream(centre, tmp_path)
    begin = time.monotonic()
    stream.until(begin + SECONDS)
    stream.check()
    assert complaints(*replicas) == []
    asked = the_element.asked()[before:]
    assert {one["given"] for one in asked} == {"token"}
    assert SECONDS / LIFETIME_S < len(asked) < 3 * (time.monotonic() - begin) / LIFETIME_S
    assert len(stream.jobs) > SECONDS / 10


def test_the_issuer_signs_with_another_key_while_jobs_run(
    start: Start, centre: Centre, the_element: Element, tmp_path: Path
) -> None:
    start(backend="htcondor")
    stream = Stream(centre, tmp_path)
    go = tmp_path / "go"
    long = job_of(f"while [ ! -e {go} ]; do sleep 0.1; done; exit 5")
    centre.create(long)
    centre.until(long.name, lambda s: s.containers[0].state.state == "running")
    stream.until(time.monotonic() + 5)
    before = len(the_element.asked())
    the_element.issuer.send_signal(signal.SIGHUP)
    eventually(lambda: len(the_element.asked()) > before, 3 * LIFETIME_S, "a token of the new key")
    stream.until(time.monotonic() + 5)
    go.touch()
    assert centre.ended(long.name).exit_code == 5
    stream.check()
