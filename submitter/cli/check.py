"""``interlink-submitter check``: try everything that the service will need, one line for each.

In the order in which one thing needs the other, so that the first line that says WRONG is where to
begin. Every such line says how to mend it.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from pathlib import Path
from typing import Callable

from submitter.cli import check_files, check_nats, check_programs, config_file
from submitter.cli.report import Report
from submitter.common.nats_request import ask_through
from submitter.config.settings import Settings
from templates.common.errors import ConfigError


async def run(path: Path, write: Callable[[str], object]) -> int:
    """Check the site that a file describes; 1 if anything is wrong with it."""
    report = Report(write)
    try:
        settings = config_file.read(path)
    except ConfigError as error:
        report.wrong("configuration", str(error), "see interlink-submitter sample")
        return 1
    pools = ", ".join(pool.name for pool in settings.pools)
    report.ok("configuration", f"{path}: pools {pools}")
    await _all(path, settings, report)
    return 1 if report.mistakes else 0


async def _all(path: Path, settings: Settings, report: Report) -> None:
    report.ok("user", f"{_user()} (has to be the one that the service runs as)")
    check_files.check_configuration(path, settings, report)
    await check_nats.check(settings, report)
    loop = asyncio.get_running_loop()
    async with check_nats.connection(settings) as link:
        for pool in settings.pools:
            await loop.run_in_executor(None, check_files.check_directory, pool, report)
            await loop.run_in_executor(None, check_programs.check, pool, report, ask_through(link))


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"number {os.geteuid()}"
