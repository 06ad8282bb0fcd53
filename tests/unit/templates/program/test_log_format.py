"""Lines of logs: what they hold, and that nothing in them can pass for another line."""

from __future__ import annotations

import json
import logging
import sys

from templates.program.log_format import FORMATS, formatter


def record(message: str, *args: object, failed: bool = False) -> logging.LogRecord:
    trouble = None
    if failed:
        try:
            raise ValueError("a\nb")
        except ValueError:
            trouble = sys.exc_info()
    made = logging.LogRecord(
        "submitter.pool.agent", logging.WARNING, "x.py", 1, message, args, trouble
    )
    made.created = 1_700_000_000.25
    return made


def test_a_plain_line() -> None:
    line = formatter("plain").format(record("job %s is gone", "x"))
    assert line == "2023-11-14T22:13:20.250Z WARNING submitter.pool.agent: job x is gone"


def test_a_json_line() -> None:
    line = formatter("json").format(record("job %s is gone", "x"))
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "submitter.pool.agent",
        "message": "job x is gone",
    }


def test_others_words_cannot_begin_a_line_or_move_the_cursor() -> None:
    hostile = "x\n2023 ERROR root: all is lost\r\x1b[2J\u2028\ud800"
    for name in FORMATS:
        line = formatter(name).format(record("pod %s", hostile))
        assert len(line.splitlines()) == 1
        assert "\x1b" not in line
        line.encode()


def test_a_traceback_comes_along() -> None:
    plain = formatter("plain").format(record("it failed", failed=True))
    assert plain.splitlines()[1] == "Traceback (most recent call last):"
    (line,) = formatter("json").format(record("it failed", failed=True)).splitlines()
    assert "ValueError" in json.loads(line)["exception"]


def test_a_stack_comes_along() -> None:
    made = record("here")
    made.stack_info = "Stack (most recent call last):\n  x"
    assert formatter("plain").format(made).endswith("last):\n  x")
