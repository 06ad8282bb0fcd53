"""Starting programs: every way in which that can go wrong has words."""

from __future__ import annotations

import time

import pytest

from submitter.common import command
from submitter.common.errors import CommandFailed


def test_output_comes_back() -> None:
    assert command.run(["cat"], stdin="grüße\n") == "grüße\n"


def test_a_failure_says_why() -> None:
    script = "echo half; echo 'sbatch: error: no such\n  partition' >&2; exit 3"
    with pytest.raises(CommandFailed) as failed:
        command.run(["bash", "-c", script])
    assert str(failed.value) == "bash: exit code 3: sbatch: error: no such partition"
    assert (failed.value.code, failed.value.output) == (3, "half\n")


def test_a_long_complaint_keeps_its_beginning_and_its_end() -> None:
    with pytest.raises(CommandFailed) as failed:
        command.run(["bash", "-c", "seq 10000 >&2; exit 1"])
    assert len(str(failed.value)) < 400
    assert str(failed.value).startswith("bash: exit code 1: 1 2 3 ")
    assert str(failed.value).endswith("9999 10000")


def test_a_signal_is_told() -> None:
    with pytest.raises(CommandFailed, match="bash: signal 9"):
        command.run(["bash", "-c", "kill -9 $$"])


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(CommandFailed, match="cannot be started: No such file"):
        command.run(["/nowhere/sbatch"])


def test_no_wait_is_endless() -> None:
    began = time.monotonic()
    with pytest.raises(CommandFailed, match=r"took longer than 0\.3 s") as failed:
        command.run(["bash", "-c", "echo 'Submitted batch job 17'; sleep 100"], timeout=0.3)
    assert time.monotonic() - began < 10
    assert failed.value.output == "Submitted batch job 17\n"
