"""``scripts/bed record``: what the real interLink sends is kept, and nothing else is changed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.sites import HELD, let_go
from tests.e2e.users import VIRTUAL_NODE, User, goes_to
from tests.support.kueue_bed import SCRIPT, KueueBed, until
from tests.support.script_runner import pod, sh

KNOWN = Path(__file__).parents[1] / "data" / "recordings" / "0.5.2-pre2"


def talker(name: str) -> dict[str, Any]:
    """A pod with a token, which talks before it is held and afterwards."""
    container = sh(f"echo one; {HELD}; echo two", resources={"requests": {"cpu": "100m"}})
    place = {"kubernetes.io/hostname": VIRTUAL_NODE}
    return pod(container, name=name, nodeSelector=place, tolerations=goes_to("host"))


@pytest.fixture
def folder(chain: KueueBed, tmp_path: Path) -> Iterator[Path]:
    """Where what interLink sends is kept, until the end of the test."""
    found = tmp_path / "kept"
    command = [str(SCRIPT), "record", "--name", chain.name, str(found)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert f"is kept in {found}" in line, line + process.stderr.read()
            yield found
        finally:
            process.send_signal(signal.SIGTERM)


def test_what_interlink_sends_is_kept(chain: KueueBed, user: User, folder: Path) -> None:
    user.create(talker("plain"))
    user.until_phase("plain", "Running")
    let_go(chain, "host", user, "plain")
    assert user.log("plain", "--follow") == "one\ntwo\n"
    user.until_ended("plain")
    user.kubectl("delete", "pod", "plain")
    until((folder / "delete-plain.json").exists, 60, "the deletion")
    until((folder / "ping.json").exists, 60, "the ping")
    names = {path.stem for path in folder.iterdir()}
    phases = {"status-plain-pending", "status-plain-running"}
    assert names >= {"create-plain", "delete-plain", "getLogs-plain-c0", "ping"}
    assert names & phases
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert not re.search(r"eyJ|BEGIN CERTIFICATE-----\\n(?!MIIB\\n)", path.read_text())
    assert_same_shape(folder, "create-plain")
    assert json.loads((folder / "getLogs-plain-c0.json").read_text())["body"]["Opts"]["Follow"]


def assert_same_shape(folder: Path, name: str) -> None:
    """It is a recording like those that tests play."""
    ours, known = (json.loads((place / f"{name}.json").read_text()) for place in (folder, KNOWN))
    assert set(ours) == set(known)
    assert (ours["method"], ours["path"]) == (known["method"], known["path"])
    assert set(ours["body"]) == set(known["body"])
    assert set(ours["body"]["pod"]) == set(known["body"]["pod"])
    assert {*ours["headers"]} == {*known["headers"]}


def test_after_a_recording_all_goes_its_old_way(
    chain: KueueBed, user: User, tmp_path: Path
) -> None:
    """Also when the recorder's process group is told to end, as Ctrl-C does it."""
    folder = tmp_path / "kept"
    command = [str(SCRIPT), "record", "--name", chain.name, str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    assert "is kept" in process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    before = set(folder.iterdir())
    user.create(talker("after"))
    user.until_phase("after", "Running")
    let_go(chain, "host", user, "after")
    assert user.log("after", "--follow") == "one\ntwo\n"
    assert set(folder.iterdir()) == before
