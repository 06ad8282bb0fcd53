"""Requests for the build configuration of a pool that was not heard from yet."""

from __future__ import annotations

import logging
import time
from typing import Optional

from plugin_server.nats.bridge import Bridge
from plugin_server.nats.gateway import Gateway
from plugin_server.state.pools import Pools
from templates.nats.requests import LinkError
from templates.protocol.publications import Config

logger = logging.getLogger(__name__)

ANSWER_S = 5.0  # for a pool that was not heard from, with a connection to NATS


class ConfigRequests:
    """Requests to all submitters to publish; called by any number of threads."""

    def __init__(self, bridge: Bridge, gateway: Gateway, pools: Pools) -> None:
        self._bridge = bridge
        self._gateway = gateway
        self._pools = pools

    @property
    def error(self) -> str:
        """Return why no request could be sent; empty if there is a connection."""
        return self._gateway.connection_error

    def config(self, pool: str, timeout_s: float) -> Optional[Config]:
        """Return it when it is published; None after one request on a lasting connection."""
        deadline = time.monotonic() + timeout_s
        config, is_asked = None, False
        while config is None and not is_asked and time.monotonic() < deadline:
            is_asked = self._gateway.is_connected
            self._say_hello()
            wait_s = min(ANSWER_S, max(deadline - time.monotonic(), 0.0))
            config = self._pools.wait_for_config(pool, wait_s)
            is_asked = is_asked and self._gateway.is_connected
        return config

    def _say_hello(self) -> None:
        try:
            self._bridge.call(self._gateway.hello(), ANSWER_S)
        except LinkError as error:
            logger.debug("no hello: %s", error)
