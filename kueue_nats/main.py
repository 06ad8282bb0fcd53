"""``kueue-nats``: run the operator, or show what it would make.

    kueue-nats [--config FILE]              run until SIGTERM or SIGINT
    kueue-nats --once                       one round, as for cron
    kueue-nats plan -f FILE [--resources FILE] [--diff]
                                            print the objects that a MasterQueue comes to

Exit codes: 0 when ended by a signal or when all is well, 1 when something went wrong (for ``plan
--diff``: when there is a difference), 2 when the configuration or the command line is wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import Optional

from kueue_nats.spec import settings as settings_module
from kueue_nats.spec.settings import PROGRAM, Settings
from templates import __version__
from templates.common.errors import ConfigError
from templates.program import main_loop

logger = logging.getLogger(__name__)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        settings = settings_module.from_environment(arguments.config)
        if arguments.command == "plan":
            from kueue_nats.operator import plan_command

            return plan_command.run(arguments, settings, sys.stdout.write)
        main_loop.set_up_logging(settings.logging)
        return _run(settings, once=arguments.once)
    except ConfigError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return main_loop.WRONG_CONFIGURATION


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Keep Kueue's quotas as MasterQueues ask, from what pools publish.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    text = "the configuration file (default: what INTERLINK_KUEUE_CONFIG names, if anything)"
    parser.add_argument("--config", metavar="FILE", default="", help=text)
    text = "one round, for cron: exit when the cluster is as it should be"
    parser.add_argument("--once", action="store_true", help=text)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="instead of running")
    text = "print what would be made of a MasterQueue, without a cluster or NATS"
    plan = commands.add_parser("plan", help=text, description=text)
    plan.add_argument("-f", dest="file", metavar="FILE", required=True, help="the MasterQueue")
    text = "YAML: pool -> what it publishes (quotas, labels, taints, or just the quotas)"
    plan.add_argument("--resources", metavar="FILE", default="", help=text)
    text = "compare with the cluster, and print only what differs"
    plan.add_argument("--diff", action="store_true", help=text)
    return parser


def _run(settings: Settings, *, once: bool) -> int:
    from kueue_nats.kube.client import connect
    from kueue_nats.operator import health as web
    from kueue_nats.operator.operator import Operator

    cluster = connect(settings.kubeconfig or settings_module.home_kubeconfig())
    operator = Operator(settings, cluster, once=once)
    if once:
        return main_loop.run(operator.run_once())
    server = web.serve(settings.listen, operator.health, operator.metrics.page)
    logger.info("%s %s looks every %s s", PROGRAM, __version__, settings.poll_s)
    try:
        return main_loop.run(operator.run())
    finally:
        server.stop()
