"""Machines that share a pool's directory: what they offer together, and who is silent."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from submitter.backends.host.machines import DELETE_AFTER_S, TIMEOUT_S, Machines
from submitter.common.errors import BackendUnavailable

OFFER = {"cpu": "2", "memory": "4Gi", "pods": "10"}
OTHER = {"cpu": "1500m", "memory": "1Gi", "pods": "5", "nvidia.com/gpu": "2"}


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(str(tmp_path), OFFER, 10)


def say(folder: Path, offer: object = OTHER, age_s: float = 0.0, name: str = "other") -> Path:
    """What another machine has written, so long ago."""
    path = folder / "machines" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(offer))
    at = time.time() - age_s
    os.utime(path, (at, at))
    return path


def test_one_alone_offers_what_it_has(machines: Machines, tmp_path: Path) -> None:
    assert machines.read_offer() == OFFER
    assert json.loads((tmp_path / "machines" / os.uname().nodename).read_text()) == OFFER
    assert machines.read_offer() == OFFER
    assert len(os.listdir(tmp_path / "machines")) == 1


def test_several_offer_the_sum(machines: Machines, tmp_path: Path) -> None:
    say(tmp_path)
    assert machines.read_offer() == {
        "cpu": "3500m",
        "memory": str(5 * 2**30),
        "pods": "15",
        "nvidia.com/gpu": "2",
    }
    assert [machines.max_offered(name) for name in ("cpu", "nvidia.com/gpu", "x")] == [2000, 2, 0]


def test_one_that_is_silent_is_left_out_and_forgotten_after_a_day(
    machines: Machines, tmp_path: Path
) -> None:
    say(tmp_path, age_s=TIMEOUT_S + 25)
    assert machines.read_offer()["cpu"] == "3500m"
    file = say(tmp_path, age_s=TIMEOUT_S + 35)
    assert machines.read_offer() == OFFER
    assert machines.max_offered("nvidia.com/gpu") == 2  # it may come back
    say(tmp_path, age_s=DELETE_AFTER_S + 10)
    assert machines.read_offer() == OFFER
    assert not file.exists()
    assert machines.max_offered("nvidia.com/gpu") == 0


@pytest.mark.parametrize("wrong", [[], {"cpu": "many"}, {"cpu": 2}, None])
def test_what_cannot_be_read_counts_for_nothing(
    machines: Machines, tmp_path: Path, wrong: object
) -> None:
    say(tmp_path, wrong)
    (tmp_path / "machines" / ".draft").touch()
    assert machines.read_offer() == {"cpu": "2000m", "memory": str(4 * 2**30), "pods": "10"}


def test_without_a_directory_it_speaks_for_itself(tmp_path: Path) -> None:
    machines = Machines(str(tmp_path / "nowhere"), OFFER, 10)
    assert machines.read_offer() == OFFER
    assert machines.max_offered("cpu") == 2000


def test_what_cannot_be_told_is_not_guessed(machines: Machines, tmp_path: Path) -> None:
    (tmp_path / "machines").touch()
    with pytest.raises(BackendUnavailable, match="what its machines offer cannot be told: Not a"):
        machines.read_offer()
