"""Formats of our programs' logs: lines for people, or JSON."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from logging import Formatter, LogRecord

PLAIN = "plain"
JSON = "json"
FORMATS = (PLAIN, JSON)


def formatter(name: str) -> Formatter:
    """Return the formatter of one of ``FORMATS``."""
    return JsonLines() if name == JSON else PlainLines()


class PlainLines(Formatter):
    """Formatter of time, level, logger and message on one line; only tracebacks take more."""

    def format(self, record: LogRecord) -> str:
        """Return the line of a record."""
        message = escape(record.getMessage())
        line = f"{format_time(record)} {record.levelname:<7} {record.name}: {message}"
        trace = _traceback(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonLines(Formatter):
    """Formatter of one JSON object on each line, with its traceback."""

    def format(self, record: LogRecord) -> str:
        """Return the line of a record."""
        fields = {
            "time": format_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        job = getattr(record, "job", None)
        if job is not None:
            fields["job"] = job
        trace = _traceback(self, record)
        if trace:
            fields["exception"] = trace
        return json.dumps(fields)


def format_time(record: LogRecord) -> str:
    """Return the time of a record, in UTC, as in RFC 3339."""
    when = datetime.fromtimestamp(record.created, timezone.utc)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def escape(text: str) -> str:
    """Return the text on one line: quoted input can neither end the line nor hide it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _traceback(form: Formatter, record: LogRecord) -> str:
    parts = [form.formatException(record.exc_info)] if record.exc_info else []
    parts += [form.formatStack(record.stack_info)] if record.stack_info else []
    return "\n".join(parts)
