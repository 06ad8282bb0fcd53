"""Faults in the chain, one after the other at random moments, each of which is made good again.

    with Trouble(bed, killed(bed, "plugin", "nats"), seed) as trouble:
        ...
    trouble.happened   # how often each

What dies of its own accord is started again, as Kubernetes would do it; ``trouble.died`` counts it.
"""

from __future__ import annotations

import functools
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.e2e.conftest import SITES
from tests.sites.slurm.site import SlurmSite
from tests.support.kueue_bed import KueueBed

PAUSE_S = (0.5, 4.0)  # between two faults
LASTS_S = (0.0, 3.0)
ATTEMPTS = 5  # at starting a program that dies while it starts
CHAIN = ("nats", "plugin", "operator", "interlink", "virtual-kubelet")


class Fault(NamedTuple):
    """Something that goes wrong, and what makes it good again."""

    name: str
    begin: Callable[[], None]
    end: Callable[[], None]


def killed(bed: KueueBed, *programs: str) -> list[Fault]:
    """Programs of the bed that are killed."""
    return [
        Fault(name, functools.partial(bed.kill, name), functools.partial(bed.start, name))
        for name in programs
    ]


def killed_at(name: str, site: SlurmSite, *parts: str) -> list[Fault]:
    """Programs of a site that are killed."""
    return [
        Fault(
            f"{name}: {part}",
            functools.partial(site.kill, part),
            functools.partial(site.start, part),
        )
        for part in parts
    ]


def cut_off(name: str, site: SlurmSite) -> Fault:
    """A site whose cable to the outside is pulled."""
    pull, plug = (functools.partial(act, "outside") for act in (site.unplug, site.plug))
    return Fault(f"{name}: cable", pull, plug)


def frozen(name: str, site: SlurmSite, part: str) -> Fault:
    """A program of a site that stands still."""
    return Fault(
        f"{name}: {part} frozen",
        functools.partial(site.freeze, part),
        functools.partial(site.thaw, part),
    )


def administer(site: SlurmSite) -> None:
    """Do what Slurm leaves to people: a controller that was killed gives numbers of jobs again.

    It then drains the nodes that have two jobs of a number, and holds the second one.
    """
    states = site.node_states()
    drained = [
        name for name, state in states.items() if state.startswith(("drain", "drng", "down"))
    ]
    if drained:
        nodes = f"nodename={','.join(drained)}"
        site.admin("scontrol", "update", nodes, "state=resume")
    jobs = site.admin("squeue", "--noheader", "--states=PENDING", "--format=%i %r").splitlines()
    held = [line.split()[0] for line in jobs if "held" in line]
    if held:
        site.admin("scontrol", "release", *held)


class Trouble:
    """Goes on in a thread of its own until the end of the ``with``, which fails when it does."""

    def __init__(
        self,
        bed: KueueBed,
        faults: Sequence[Fault],
        seed: int,
        pause_s: tuple[float, float] = PAUSE_S,
    ) -> None:
        self._bed, self._faults, self._pause_s = bed, list(faults), pause_s
        sites = [site for site in map(bed.site, SITES) if site.file.exists()]
        self._administered = [site for site in sites if site.nodes]
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._executor = ThreadPoolExecutor(1)
        self.happened: Counter[str] = Counter()
        self.died: Counter[str] = Counter()

    def __enter__(self) -> Trouble:
        self._done = self._executor.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._executor.shutdown()
        self._done.result()

    @property
    def has_had_all(self) -> bool:
        """Whether each of the faults has been there."""
        return all(self.happened[fault.name] for fault in self._faults)

    def __str__(self) -> str:
        return f"faults {dict(self.happened)}, died of their own accord {dict(self.died)}"

    def _run(self) -> None:
        while not self._over.wait(self._random.uniform(*self._pause_s)):
            # Each of them once, before any comes again.
            least = min(self.happened[fault.name] for fault in self._faults)
            choice = [fault for fault in self._faults if self.happened[fault.name] == least]
            fault = self._random.choice(choice)
            self.revive()
            self._begin(fault)
            self._over.wait(self._random.uniform(*LASTS_S))
            self._end(fault)
            for site in self._administered:
                administer(site)
        self.revive()

    def _begin(self, fault: Fault) -> None:
        try:
            fault.begin()
        except AssertionError:
            if fault.name not in self._bed.ended():
                raise
            self.died[fault.name] += 1  # just before we came
        self.happened[fault.name] += 1

    def _end(self, fault: Fault) -> None:
        for _ in range(ATTEMPTS):
            try:
                fault.end()
                return
            except AssertionError:
                if fault.name not in self._bed.ended():
                    raise
                self.died[fault.name] += 1
        raise AssertionError(
            f"{fault.name} does not start again: {self._bed.log(fault.name)[-2000:]}"
        )

    def revive(self) -> None:
        """Start programs of the bed that have ended."""
        for name in self._bed.ended():
            self.died[name] += 1
            self._end(killed(self._bed, name)[0])
