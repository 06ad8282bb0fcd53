"""``nats-site watch``: who asks more of the NATS server than its limits can hold.

The server bounds how much there is of everything, and no rates. Here its figures are looked at
again and again, and the site is named that is beyond what any of ours does; its account can be
closed for it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional

from templates.cli import nats_files
from templates.cli.nats_files import CLOSED, OPEN
from templates.common.errors import one_line

TIMEOUT_S = 5.0
MOST_CONNECTIONS = 10_000  # that the server remembers when they are over


class Rates(NamedTuple):
    """What a site did, or may do, in a second."""

    messages: float = 5000.0
    megabytes: float = 500.0
    slow_readers: float = 0.3
    connections: float = 5.0


class Figures(NamedTuple):
    """What the server has counted since its start."""

    sites: dict[str, Rates]  # totals: nothing of it is by the second yet
    last_connection: int


class Watch(NamedTuple):
    """How a server is watched."""

    folder: Path
    url: str
    most: Rates
    every_s: float
    times: int  # how often in a row a site has to be beyond a limit until it is closed
    reload: str  # the command; empty: no site is closed


def run(watch: Watch) -> None:
    """Look for ever, and print a line for each site that is beyond a limit."""
    before: Optional[Figures] = None
    beyond: dict[str, int] = {}
    began = time.monotonic()
    while True:
        last, began = began, time.monotonic()
        try:
            after = look(watch.url, _open_sites(watch.folder), before)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _say(f"{watch.url}: {one_line(str(error)) or type(error).__name__}")
            before = None
        else:
            told = dict(exceeded(before, after, began - last, watch.most)) if before else {}
            beyond = {site: beyond.get(site, 0) + 1 for site in told}
            for site, line in told.items():
                _say(f"{site}: {line}")
            if watch.reload:
                close(watch, [site for site in told if beyond[site] >= watch.times])
            before = after
        time.sleep(max(0.0, began + watch.every_s - time.monotonic()))


def look(url: str, sites: Iterable[str], before: Optional[Figures] = None) -> Figures:
    """Read the server's figures; without any before, connections are counted from now on."""
    counted = {entry["acc"]: entry for entry in _read(f"{url}/accstatz?unused=1")["account_statz"]}
    last = before.last_connection if before else 0
    found, latest = {}, last
    for site in sites:
        if site not in counted:
            continue  # the server has not heard of it yet
        query = f"connz?state=any&acc={site}&limit={MOST_CONNECTIONS}"
        numbers = [each["cid"] for each in _read(f"{url}/{query}")["connections"]]
        latest = max([latest, *numbers])
        own, earlier = counted[site], before.sites.get(site) if before else None
        found[site] = Rates(
            own["received"]["msgs"],
            own["received"]["bytes"] / 1e6,
            own["slow_consumers"],
            (earlier.connections if earlier else 0) + sum(number > last for number in numbers),
        )
    return Figures(found, latest)


def exceeded(
    before: Figures, after: Figures, seconds: float, most: Rates
) -> Iterator[tuple[str, str]]:
    """Yield each site that was beyond a limit, and how far, in words."""
    for site, now in after.sites.items():
        rates = [(n - o) / seconds for n, o in zip(now, before.sites.get(site, now))]
        words = [
            f"{rate:.4g} {name.replace('_', ' ')} a second (limit {limit:g})"
            for name, rate, limit in zip(Rates._fields, rates, most)
            if rate > limit
        ]
        if words:
            yield site, ", ".join(words)


def close(watch: Watch, sites: Iterable[str]) -> None:
    """Close the accounts of sites, and have the server hear of it."""
    with nats_files.locked(watch.folder):
        register = nats_files.load(watch.folder)
        closing = [s for s in sites if s in register.sites and register.users[s].state == OPEN]
        for site in closing:
            register.users[site] = register.users[site]._replace(state=CLOSED)
        if closing:
            nats_files.save(watch.folder, register)
    if not closing:
        return
    for site in closing:
        _say(f"{site}: closed; nats-site open {site} lets it in again")
    try:
        subprocess.run(shlex.split(watch.reload), check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        _say(f"{watch.reload}: failed, and the server lets them in still: {one_line(str(error))}")


def _open_sites(folder: Path) -> list[str]:
    sites = nats_files.load(folder).sites
    return [name for name, user in sites.items() if user.state == OPEN]


def _read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 (the admin's own)
        return json.load(answer)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
