"""``interlink-submitter``: run the service in the foreground, check a site, or show a sample.

    interlink-submitter [--config FILE]          run until SIGTERM or SIGINT
    interlink-submitter check [--config FILE]    try everything that the service will need
    interlink-submitter sample                   print a configuration file with every key
    interlink-submitter import-slurm-config [FILE] make one from interLink's SlurmConfig.yaml

Exit codes: 0 when ended by a signal (or when all is well, for ``check``), 1 when something is
wrong, 2 when the configuration or the command line is.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from submitter.cli import config_file, handover
from submitter.config.settings import Settings, read_variables
from templates import __version__
from templates.common.errors import ConfigError
from templates.nats.options import LinkSettings
from templates.program import main_loop
from templates.program.main_loop import WRONG_CONFIGURATION, set_up_logging

logger = logging.getLogger(__name__)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "sample":
        sys.stdout.write(config_file.sample())
        return 0
    if arguments.command == "check":
        from submitter.cli import check

        # The report says the same as the log of the connection, and better.
        logging.disable(logging.CRITICAL)
        return asyncio.run(check.run(arguments.config, sys.stdout.write))
    if arguments.command == "import-slurm-config":
        return import_slurm_config(arguments.file, arguments.output)
    try:
        settings = config_file.read(arguments.config)
        options = handover.take_options(settings)
    except ConfigError as error:
        sys.stderr.write(f"interlink-submitter: {error}\n")
        return WRONG_CONFIGURATION
    set_up_logging(settings.logging)
    return run(settings, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="interlink-submitter",
        description="Run jobs of Kubernetes pods at this site, as they come in through NATS.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    default = Path(config_file.DEFAULT_PATH)
    help_text = f"the configuration file (default: {default})"
    parser.add_argument("--config", metavar="FILE", type=Path, default=default, help=help_text)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="instead of running")
    check = commands.add_parser("check", help="try everything that the service will need")
    check.add_argument(
        "--config", metavar="FILE", type=Path, default=argparse.SUPPRESS, help=help_text
    )
    commands.add_parser("sample", help="print a configuration file with every key explained")
    help_text = "make a configuration file from that of interLink's Slurm plugin"
    old = commands.add_parser("import-slurm-config", help=help_text)
    help_text = "its SlurmConfig.yaml (default: where the plugin would look for it)"
    old.add_argument("file", metavar="FILE", type=Path, nargs="?", help=help_text)
    help_text = "where to write it (default: standard output)"
    old.add_argument("--output", metavar="FILE", type=Path, help=help_text)
    return parser


def import_slurm_config(path: Optional[Path], output: Optional[Path]) -> int:
    """Convert interLink's configuration; report on standard error what became of each key."""
    from submitter.cli import slurm_import

    found = read_variables(slurm_import.VARIABLES)
    path = path or slurm_import.find_config(found)
    try:
        imported = slurm_import.convert(slurm_import.read(path), str(path), found)
    except ConfigError as error:
        sys.stderr.write(f"interlink-submitter: {error}\n")
        return WRONG_CONFIGURATION
    sys.stderr.write("".join(f"{line}\n" for line in imported.report))
    if output is None:
        sys.stdout.write(imported.text)
        return 0
    try:
        output.write_text(imported.text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"interlink-submitter: {output}: {error.strerror}\n")
        return WRONG_CONFIGURATION
    return 0


def run(settings: Settings, options: LinkSettings) -> int:
    """Run the service until it ends or a signal ends it; return the exit code."""
    from submitter.cli.service import serve

    names = ", ".join(pool.name for pool in settings.pools)
    logger.info("interlink-submitter %s serves %s", __version__, names)
    return main_loop.run(serve(settings, options))
