"""Logging for many threads: lines are written a moment later, many at once.

A thread that writes a line itself gives way to all others, and then waits for its turn again: with
a pod created in each, that takes as long as the translation of the pods.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from typing import Any

LATE_S = 0.05


class LateLines(logging.Handler):
    """Standard error, at most ``LATE_S`` late; at once for an error, and at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """In each process: the thread that writes does not survive a fork."""
        self._lines: deque[str] = deque()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._has_writer = False

    def emit(self, record: logging.LogRecord) -> None:
        """Logging's place for a line; others wait meanwhile."""
        try:
            self._lines.append(self.format(record) + "\n")
        except Exception:  # noqa: BLE001 (logging's own way to complain of a wrong call)
            self.handleError(record)
            return
        if record.levelno >= logging.ERROR:
            self.flush()
        elif not self._has_writer:
            self._has_writer = True
            threading.Thread(target=self._write_for_ever, name="log", daemon=True).start()
            self._wake.set()
        elif not self._wake.is_set():
            self._wake.set()

    def flush(self) -> None:
        """Write what there is."""
        with self._writing:
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            sys.stderr.write("".join(lines))
            sys.stderr.flush()

    def _write_for_ever(self) -> None:
        while self._wake.wait():
            time.sleep(LATE_S)
            self._wake.clear()
            self.flush()


def configuration(level: str, form: str) -> dict[str, Any]:
    """The configuration of Python's logging, for gunicorn and us alike."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": "templates.log_format.formatter", "name": form}},
        "handlers": {"stderr": {"()": f"{__name__}.{LateLines.__name__}", "formatter": "lines"}},
        "root": {"level": level.upper(), "handlers": ["stderr"]},
        "loggers": {
            "gunicorn.error": {"level": level.upper(), "propagate": True, "handlers": []},
            "gunicorn.access": {"level": "WARNING", "propagate": True, "handlers": []},
        },
    }
