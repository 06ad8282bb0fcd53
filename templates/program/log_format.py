"""What a line of our programs' logs looks like: for people, or as JSON."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from logging import Formatter, LogRecord

PLAIN = "plain"
JSON = "json"
FORMATS = (PLAIN, JSON)


def formatter(name: str) -> Formatter:
    """The formatter of one of ``FORMATS``."""
    return JsonLines() if name == JSON else PlainLines()


class PlainLines(Formatter):
    """Time, level, logger and message on one line; only tracebacks take more."""

    def format(self, record: LogRecord) -> str:
        """Logging's place for making the line."""
        message = escaped(record.getMessage())
        line = f"{moment(record)} {record.levelname:<7} {record.name}: {message}"
        trace = _traceback(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonLines(Formatter):
    """One JSON object on each line, also of a traceback."""

    def format(self, record: LogRecord) -> str:
        """Logging's place for making the line."""
        fields = {
            "time": moment(record),
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


def moment(record: LogRecord) -> str:
    """When it was logged, in UTC, as RFC 3339 has it."""
    when = datetime.fromtimestamp(record.created, timezone.utc)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def escaped(text: str) -> str:
    """The text on one line: what it holds of others' words can neither end it nor hide it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _traceback(form: Formatter, record: LogRecord) -> str:
    parts = [form.formatException(record.exc_info)] if record.exc_info else []
    parts += [form.formatStack(record.stack_info)] if record.stack_info else []
    return "\n".join(parts)
