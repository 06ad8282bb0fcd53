"""kill -9 of anything of a system at a real site, its batch system's programs too."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Optional

from scripts.lib.slurm.machines import Trouble
from tests.support.site_system import SiteSystem

logger = logging.getLogger(__name__)

ROUNDS = 2  # in each of which everything is killed once
PAUSE_S = (0.5, 2.5)


def _nothing() -> None:
    pass


class Killer:
    """Kills one thing after the other, and starts it again.

    ``repair`` is what an administrator does meanwhile, ``revive`` how one starts what was killed.
    """

    def __init__(
        self,
        system: SiteSystem,
        daemons: Sequence[str],
        repair: Callable[[], None] = _nothing,
        revive: Optional[Callable[[str], None]] = None,
    ) -> None:
        self._system, self._site = system, system.at
        self._daemons = list(daemons)
        self._repair = repair
        self._revive = revive or self._site.start
        self._chance = random.Random()
        self.killed: list[tuple[float, str]] = []  # when, and what of the site
        self._over = threading.Event()
        self._repairing = threading.Thread(target=self._keep_repairing, daemon=True)

    def __enter__(self) -> Killer:
        self._repairing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._repairing.join(60)

    def happen(self) -> None:
        """Kill; everything runs again afterwards."""
        submitters = [name for name in self._system.processes if name.startswith("submitter")]
        victims = ["plugin", "worker", *submitters, "nats", *self._daemons]
        for _ in range(ROUNDS):
            for victim in self._chance.sample(victims, len(victims)):
                time.sleep(self._chance.uniform(*PAUSE_S))
                logger.warning("kills %s", victim)
                self._kill(victim)

    def _kill(self, victim: str) -> None:
        if victim in self._daemons:
            self.killed.append((time.time(), victim))
            self._site.kill(victim)
            time.sleep(self._chance.uniform(0, 2))
            self._revive(victim)
        elif victim == "worker":
            for worker in self._system.processes["plugin"].children()[:1]:
                os.kill(worker, signal.SIGKILL)
        else:
            self._system.kill(victim)
            time.sleep(self._chance.uniform(0, 1))
            self._system.start(victim)

    def _keep_repairing(self) -> None:
        while not self._over.wait(2):
            with contextlib.suppress(Trouble):  # who could tell what is broken is away: later
                self._repair()
