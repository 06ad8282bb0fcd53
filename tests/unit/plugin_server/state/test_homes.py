"""Homes of pods: what several processes and a restarted one know of them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from plugin_server.state import homes as module
from plugin_server.state.homes import Homes

pytestmark = pytest.mark.security


def uids(count: int) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(count)]


def test_a_home_survives_a_restart_and_is_known_to_other_workers(tmp_path: Path) -> None:
    folder = str(tmp_path / "state")
    one, other = Homes(folder), Homes(folder)
    first, second = uids(2)
    one.set(first, "a")
    assert (other.get(first), other.find(first)) == ("", "a")
    other.set(second, "b")
    one.set(first, "b")
    again = Homes(folder)
    assert [again.get(uid) for uid in (first, second)] == ["b", "b"]
    assert one.find(second) == "b"
    assert again.find(uids(1)[0]) == ""


def test_what_is_set_again_is_not_written_again(tmp_path: Path) -> None:
    homes = Homes(str(tmp_path))
    (uid,) = uids(1)
    for _ in range(10):
        homes.set(uid, "a")
    assert (tmp_path / "homes").read_text() == f"{uid} a\n"
    assert (tmp_path / "homes").stat().st_mode & 0o777 == 0o600


def test_without_a_folder_they_are_in_memory() -> None:
    homes = Homes()
    (uid,) = uids(1)
    homes.set(uid, "a")
    assert homes.find(uid) == "a"


def test_files_and_memory_do_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_FILE", 1000)
    monkeypatch.setattr(module, "MOST_HOMES", 30)
    folder = str(tmp_path)
    one, other = Homes(folder), Homes(folder)
    many = uids(200)
    for number, uid in enumerate(many):
        (one, other)[number % 2].set(uid, f"p{number}")
    for known in (one, other, Homes(folder)):
        assert known.find(many[-1]) == "p199"
        assert known.find(many[-2]) == "p198"
        assert known.find(many[0]) == ""
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2200


@pytest.mark.parametrize(
    "spoilt", [b"", b"\xff\xfe\n", b"x y\n", b" \n\n", b"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\n"]
)
def test_spoilt_lines_are_left_out(tmp_path: Path, spoilt: bytes) -> None:
    (uid,) = uids(1)
    line = f"{uid} a\n".encode()
    (tmp_path / "homes").write_bytes(spoilt + line)
    (tmp_path / "homes.old").write_bytes(spoilt)
    assert Homes(str(tmp_path)).get(uid) == "a"


def test_a_folder_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    homes = Homes(str(tmp_path / "file"))
    for uid in uids(3):
        homes.set(uid, "a")
        assert homes.find(uid) == "a"
    assert caplog.text.count("are kept in memory only") == 1
