"""Log lines that are written late: none is lost, and errors are not late."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from plugin_server.log_lines import LATE_S, LateLines


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("late")
    made.setLevel(logging.INFO)
    made.propagate = False
    late = LateLines()
    made.addHandler(late)
    yield made
    made.removeHandler(late)
    late.close()


def test_lines_of_many_threads_all_come_whole(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    def talk(name: int) -> None:
        for number in range(500):
            logger.info("%s says %s", name, number)

    threads = [threading.Thread(target=talk, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for handler in logger.handlers:
        handler.flush()
    lines = capsys.readouterr().err.splitlines()
    assert sorted(lines) == sorted(f"{a} says {b}" for a in range(8) for b in range(500))


def test_a_line_comes_by_itself(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("first", "second"):
        logger.info(words)
        said, end = "", time.monotonic() + 10
        while words not in said and time.monotonic() < end:
            time.sleep(LATE_S)
            said += capsys.readouterr().err
        assert said == f"{words}\n"


def test_an_error_is_not_late(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logger.info("before")
    logger.error("it broke")
    assert capsys.readouterr().err == "before\nit broke\n"


def test_the_last_lines_of_a_process_and_of_its_child_come(tmp_path: object) -> None:
    program = """
import logging, os, sys
from plugin_server.log_lines import configuration
import logging.config
logging.config.dictConfig(configuration("info", "plain"))
logging.info("before the fork")
logging.getLogger().handlers[0].flush()
child = os.fork()
logging.info("child" if not child else "parent")
if child:
    os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    words = sorted(line.rpartition(": ")[2] for line in done.stderr.splitlines())
    assert words == ["before the fork", "child", "parent"]
