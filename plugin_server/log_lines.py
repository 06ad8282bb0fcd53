"""How log lines look: plain ones for people, or JSON; every line about a job names it."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

PLAIN = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        job = getattr(record, "job", None)
        if job is not None:
            fields["job"] = job
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configuration(level: str, form: str) -> dict[str, Any]:
    """The configuration of Python's logging, for gunicorn and us alike."""
    formatter: dict[str, Any] = {"format": PLAIN}
    if form == "json":
        formatter = {"()": f"{__name__}.{JsonFormatter.__name__}"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": formatter},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "lines",
                "stream": "ext://sys.stderr",
            }
        },
        "root": {"level": level.upper(), "handlers": ["stderr"]},
        "loggers": {
            "gunicorn.error": {"level": level.upper(), "propagate": True, "handlers": []},
            "gunicorn.access": {"level": "WARNING", "propagate": True, "handlers": []},
        },
    }
