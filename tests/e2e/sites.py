"""What there is of pods at the sites of the chain."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.users import User
from tests.sites.slurm.site import SlurmSite
from tests.support.kueue_bed import KueueBed, until

# What pods may mount of a site.
DATA = "/home/alice/data"

# Where a script waits until a test lets it go on.
HELD = ">/tmp/held; until test -e /tmp/go; do sleep 0.1; done"


def let_go(chain: KueueBed, site: str, user: User, pod: str) -> None:
    """Have the container of a pod go on that is held at a site."""
    (directory,) = directories(chain, site, uid_of(user, pod))

    def held() -> list[Path]:
        found = [path.with_name("go") for path in directory.glob("scratch/.tmp-*/tmp/held")]
        return [path for path in found if not path.exists()]

    (go,) = until(held, what=f"{pod} to be held")
    go.touch()


@contextlib.contextmanager
def full(site: SlurmSite) -> Iterator[None]:
    """Somebody else has all nodes of a Slurm site."""
    job = site.submit("sleep 1000", f"--nodes={len(site.nodes)}", "--exclusive")
    try:
        site.until(job, "RUNNING")
        yield
    finally:
        site.login("scancel", job)


def directories(chain: KueueBed, site: str, uid: str) -> list[Path]:
    """What a pod has at a site: one directory, or none."""
    return list((chain.site(site).home / "pool" / "jobs").glob(f"*-{uid}"))


def uid_of(user: User, pod: str) -> str:
    found: str = user.pod(pod)["metadata"]["uid"]
    return found
