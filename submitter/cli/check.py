"""``interlink-submitter check``: try everything that the service will need, one line for each.

Checks come in the order in which they depend on each other: the first line that says WRONG is where
to begin. Every such line has a hint.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Callable

from submitter.cli import (
    check_files,
    check_nats,
    check_programs,
    check_trust,
    config_file,
    handover,
)
from submitter.cli.report import Report
from submitter.common.nats_request import ask_through
from submitter.config.settings import Pool, Settings
from templates.common.errors import ConfigError
from templates.nats.options import LinkSettings
from templates.site.build_config import ON_THE_NODE


async def run(path: Path, write: Callable[[str], object]) -> int:
    """Check the site that a file describes; return 1 if anything is wrong with it, else 0."""
    report = Report(write)
    try:
        settings = config_file.read(path)
        options = handover.take_options(settings)
    except ConfigError as error:
        report.wrong("configuration", str(error), "see interlink-submitter sample")
        return 1
    pools = ", ".join(pool.name for pool in settings.pools)
    report.ok("configuration", f"{path}: pools {pools}")
    await _check_all(path, settings, options, report)
    return 1 if report.mistakes else 0


async def _check_all(path: Path, settings: Settings, options: LinkSettings, report: Report) -> None:
    report.ok("user", f"{check_files.user_name()} (has to be the one that the service runs as)")
    check_files.check_configuration(path, settings, options, report)
    check_trust.check(path, settings, options, report)
    await check_nats.check(settings, options, report)
    for pool in settings.pools:
        _note_annotations(pool, report)
    loop = asyncio.get_running_loop()
    async with check_nats.open_link(settings, options) as link:
        for pool in settings.pools:
            await loop.run_in_executor(None, check_files.check_directory, pool, report)
            await loop.run_in_executor(None, check_programs.check, pool, report, ask_through(link))


def _note_annotations(pool: Pool, report: Report) -> None:
    on = [name for name in ON_THE_NODE if not pool.build.rules.refusal(name)]
    if on:
        message = f"pods may act on the node as this user, outside of containers: {', '.join(on)}"
        report.note(f"pool {pool.name}: rules.annotations", message)
