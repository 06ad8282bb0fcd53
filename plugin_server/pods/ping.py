"""The response to interLink's ping: resources of the virtual node, as Kubernetes quantities.

Every value is a string: a number anywhere would make interLink ignore all of it.
"""

from __future__ import annotations

import json
from typing import Any

from plugin_server.state.pools import CPU, MEMORY, PODS, Pools

_OWN_FIELDS = (CPU, MEMORY, PODS)


def answer(pools: Pools) -> bytes:
    """Return the response, from memory."""
    totals = pools.totals()
    resources: dict[str, Any] = {}
    if CPU in totals:
        resources[CPU] = _cpu(totals[CPU])
    for name in (MEMORY, PODS):
        if name in totals:
            resources[name] = str(totals[name])
    accelerators = [
        {"resourceType": name, "available": str(amount)}
        for name, amount in sorted(totals.items())
        if name not in _OWN_FIELDS
    ]
    if accelerators:
        resources["accelerators"] = accelerators
    found: dict[str, Any] = {"status": "ok"}
    if resources:
        found["resources"] = resources
    return json.dumps(found, separators=(",", ":")).encode()


def _cpu(milli: int) -> str:
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"
