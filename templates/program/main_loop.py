"""Run a service in the foreground: its log, the signals that end it, its exit code.

Unlike nearly all of templates it changes the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Callable, Optional

from templates.common.errors import ConfigError
from templates.program.log_format import formatter
from templates.program.settings import Logging

logger = logging.getLogger(__name__)

STOP_S = 25  # to end by itself after a signal; systemd and Kubernetes wait longer before they kill
FAILED = 1
WRONG_CONFIGURATION = 2


def set_up_logging(settings: Logging) -> None:
    """Log everything to standard error; the service manager keeps it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(settings.format))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    # nats-py logs every frame and its own errors; our messages say what they mean.
    logging.getLogger("nats").setLevel(logging.CRITICAL)


def run(service: Coroutine[Any, Any, int]) -> int:
    """Run a service until it ends or a signal ends it; return the exit code."""
    try:
        return asyncio.run(run_until_signal(service))
    except ConfigError as error:
        logger.error("%s", error)
        return WRONG_CONFIGURATION
    except Exception:  # the last log line of a service that nobody watches
        logger.exception("the service has failed")
        return FAILED


async def run_until_signal(service: Coroutine[Any, Any, int]) -> int:
    """Run a service; SIGTERM and SIGINT cancel it, and end the process if it does not end."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(service)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, task.cancel, number)
    try:
        return await task
    except asyncio.CancelledError:
        return 0
    finally:
        _set_deadline()  # threads that hang in a file system would keep the process for ever


def _stop(cancel: Callable[[], object], number: int) -> None:
    logger.info("%s: stopping", signal.Signals(number).name)
    _set_deadline()
    cancel()


def _set_deadline() -> None:
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(STOP_S)


def _give_up(number: int, frame: Optional[FrameType]) -> None:
    """End the process, whatever still hangs: everything that matters is stored."""
    logger.error("did not stop within %s s: giving up", STOP_S)
    os._exit(FAILED)
