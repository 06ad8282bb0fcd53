"""What those who say hello tell of themselves: how often they want to hear of a pool."""

from __future__ import annotations

import logging

from templates import messages, wire
from templates.errors import WireError

logger = logging.getLogger(__name__)

SOMEBODY = "a program in the cluster"


class Greetings:
    """Compares with how often the pool publishes what it offers; says each thing once."""

    def __init__(self, pool: str, every_s: int) -> None:
        self._pool, self._every_s = pool, every_s
        self._told: set[int] = set()  # intervals: fewer than every_s has seconds
        self._puzzled = False

    def hear(self, raw: bytes) -> None:
        """Log if the pool publishes too rarely for who says this; nothing in it is an error."""
        try:
            said = messages.read_hello(wire.decode(raw))
        except WireError as error:
            if not self._puzzled:
                logger.warning("pool=%s: a hello that cannot be read: %s", self._pool, error)
            self._puzzled = True
            return
        if not 0 < said.interval_s < self._every_s or said.interval_s in self._told:
            return
        self._told.add(said.interval_s)
        logger.warning(
            "pool=%s: %s counts this pool as lost unless it hears of it every %s s; "
            "pools[].timing.resources_s is %s: lower it",
            self._pool,
            said.sender or SOMEBODY,
            said.interval_s,
            self._every_s,
        )
