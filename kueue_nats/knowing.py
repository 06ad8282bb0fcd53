"""Which flavors Kueue knows: a queue that names one which it has not heard of admits nothing.

Kueue hears of flavors and of queues by two ways, and either may be late, by half a minute when the
API server comes back from a crash. It never says that it knows a flavor. But it lets go of one that
was deleted, by taking its finalizer off, and it hears of flavors in the order of their changes: so
once one is gone that was deleted when others were there, it knows these, too. The *probe* is a
flavor that is made to be deleted: it comes when there are flavors of which we are not sure, goes at
the next look, and when it is gone queues may name them.

A flavor that our queues name has been through this. All else is kept in memory: an operator that
has just started asks again, about flavors that no queue of ours names yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Optional

from kueue_nats.steps import is_going, is_ours, named_flavors
from templates.names import flavor_name

IN_USE = "kueue.x-k8s.io/resource-in-use"  # Kueue's finalizer
PATIENCE_S = 10.0  # for which Kueue's answer is looked for in quick succession

Json = Mapping[str, Any]
Named = Mapping[str, Json]  # objects by their names


class Known(NamedTuple):
    """What one look at the cluster tells."""

    flavors: frozenset[str]
    unsure: tuple[str, ...]  # those that could be named if Kueue is known to know them
    for_s: float  # how long there have been such
    is_probed: bool  # whether the probe should be there now

    @property
    def soon(self) -> bool:
        """Whether the answer can be expected at any moment."""
        return bool(self.unsure) and self.for_s < PATIENCE_S


class Knowing:
    """What was found out for one MasterQueue."""

    def __init__(self, name: str, uid: str) -> None:
        self.probe = flavor_name(name, "probe")
        self._uid = uid
        self._known: frozenset[str] = frozenset()  # uids of flavors, as those below
        self._asked = ""  # the probe that is on its way out
        self._covers: frozenset[str] = frozenset()  # what was there when it was last there
        self._since_s: Optional[float] = None

    def look(self, usable: Collection[str], flavors: Named, queues: Named, now_s: float) -> Known:
        """What is known of the flavors that could be named, and whether to ask about the rest."""
        uids = {name: str(item["metadata"]["uid"]) for name, item in flavors.items()}
        if self._asked and uids.get(self.probe) != self._asked:
            self._known |= self._covers
            self._asked = ""
        self._known &= frozenset(uids.values())
        ours = named_flavors([queue for queue in queues.values() if is_ours(queue, self._uid)])
        known = frozenset(n for n in usable if n in ours or uids[n] in self._known)
        unsure = tuple(sorted(frozenset(usable) - known))
        if not unsure or self._since_s is None:
            self._since_s = now_s if unsure else None
        for_s = 0.0 if self._since_s is None else now_s - self._since_s
        return Known(known, unsure, for_s, self._is_probed(flavors, uids, unsure))

    def _is_probed(self, flavors: Named, uids: Mapping[str, str], unsure: Collection[str]) -> bool:
        """Whether the probe is to come, or to stay until Kueue holds it; else it goes."""
        probe = flavors.get(self.probe)
        if probe is None or not is_ours(probe, self._uid):  # of the latter it will be said
            return bool(unsure)
        if is_going(probe):
            return False
        if IN_USE not in (probe["metadata"].get("finalizers") or ()):
            return bool(unsure)
        self._asked, self._covers = uids[self.probe], frozenset(uids.values())
        return False
