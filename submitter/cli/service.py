"""The service: one connection to NATS, and one agent for each pool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from submitter.backends import registry
from submitter.cli.systemd import Notifier, keep_notified
from submitter.common.nats_request import ask_through
from submitter.config.settings import Settings
from submitter.jobs.context import PoolContext
from submitter.jobs.table import Table
from submitter.pool.agent import Agent
from submitter.store.journal import Journal
from templates.nats.connection import Link
from templates.nats.options import LinkSettings

logger = logging.getLogger(__name__)

THREADS = 16
STOP_S = 15.0  # for all agents together to finish pending requests
LINK_STOP_S = 5.0


async def serve(settings: Settings, options: LinkSettings) -> int:
    """Run until cancelled or asked to shut down (0), or until the connection is given up (1)."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "work"))
    shutdown = asyncio.Event()
    agents: list[Agent] = []

    async def publish_all() -> None:
        await asyncio.gather(*(agent.publisher.publish_all() for agent in agents))

    root = settings.nats.root
    link = Link(options, root, publish_all)
    for pool in settings.pools:
        backend = registry.make_backend(pool, ask_through(link))
        context = PoolContext(pool, Journal(pool.directory), backend, Table(backend.starts_again))
        agents.append(Agent(context, link, root, shutdown.set))
    notifier = Notifier.from_environment()
    reporting = asyncio.create_task(
        keep_notified(notifier, link.connected, lambda: _describe(agents, link))
    )
    try:
        for agent in agents:
            await agent.start()
        await link.start()
        return await _wait_for_end(shutdown, link)
    finally:
        reporting.cancel()
        await _stop(agents, link)


def _describe(agents: Sequence[Agent], link: Link) -> str:
    """Return what the service is doing, for people."""
    jobs = ", ".join(f"{agent.pool}: {len(agent.lifecycle.context.table)} jobs" for agent in agents)
    state = f"no connection to NATS: {link.error}" if link.error else "connected"
    return f"{state}; {jobs}"


async def _wait_for_end(shutdown: asyncio.Event, link: Link) -> int:
    """Return 0 once asked to shut down; 1 if the connection's task ends, which it never should."""
    waits = [asyncio.create_task(shutdown.wait()), asyncio.create_task(link.ended())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if shutdown.is_set():
        return 0
    logger.error("the connection to NATS has been given up")
    return 1


async def _stop(agents: Sequence[Agent], link: Link) -> None:
    """Stop in bounded time; whatever matters is on disk."""
    try:
        await asyncio.wait_for(asyncio.gather(*(agent.stop() for agent in agents)), STOP_S)
    except (asyncio.TimeoutError, OSError) as error:
        logger.warning("not everything was finished: %s", error or "time is up")
    try:
        await asyncio.wait_for(link.stop(), LINK_STOP_S)
    except asyncio.TimeoutError:
        logger.warning("the connection to NATS could not be closed in time")
