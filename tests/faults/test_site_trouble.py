"""What goes wrong at a site: a full disk, a directory removed by hand, a clock that is off."""

from __future__ import annotations

import calendar
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib.interlink import Answer
from tests.support.system import POOL, System, running

pytestmark = pytest.mark.faults


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder whose site has 4 MB of disk."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "site"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=True)
    yield tmp_path
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_refuses_with_words_and_loses_nothing(small_disk: Path) -> None:
    with running(small_disk, plugin={"create_timeout_s": 3}) as system:
        running_pod = system.run("sleep 1; exit 2")
        system.until(lambda: system.directory(running_pod).exists(), "it was taken")
        filler = system.site / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}"], capture_output=True, check=False)
        with pytest.raises(Answer) as refused:
            system.run(f"true # {'x' * 100_000}")  # what ends meanwhile leaves less
        assert "no space" in refused.value.text.lower()
        assert list((system.site / POOL / "incoming").iterdir()) == []
        filler.unlink()
        assert [end["exitCode"] for end in system.ended(system.run("exit 3"))] == [3]
        system.ended(running_pod)


def test_a_directory_removed_by_hand_is_told_and_not_made_again(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        pod = system.run("sleep 100")
        system.until((system.directory(pod) / "records").exists, "it runs")
        while system.directory(pod).exists():  # its script may write there meanwhile
            shutil.rmtree(system.directory(pod), ignore_errors=True)
        (end,) = system.ended(pod)
        assert end["exitCode"] != 0
        assert "removed" in end["message"] or "gone" in end["message"]
        time.sleep(1)
        assert not system.directory(pod).exists()


def test_a_killed_script_is_told_and_leaves_no_process(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        pod = system.run("exec sleep 12345.5")
        marker = "12345.5"

        def sleepers() -> list[Path]:
            return [p for p in Path("/proc").glob("[0-9]*") if marker in _words(p)]

        system.until(sleepers, "it runs")
        script = next(
            p
            for p in Path("/proc").glob("[0-9]*")
            if "job.sh" in _words(p) and _is_of(p, system, pod)
        )
        os.kill(int(script.name), signal.SIGKILL)
        (end,) = system.ended(pod)
        assert end["exitCode"] != 0
        assert end["message"]
        system.until(lambda: not sleepers(), "what it left is ended")
        system.until(lambda: not (system.directory(pod) / "secret").exists(), "no secret is left")


def _words(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _is_of(process: Path, system: System, pod: dict[str, object]) -> bool:
    return str(system.directory(pod)) in _words(process)


def test_a_site_whose_clock_is_an_hour_behind(tmp_path: Path) -> None:
    library = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
    assert library.exists(), "the Debian package faketime is needed"
    ahead = {"LD_PRELOAD": str(library), "FAKETIME": "+1h"}
    with running(tmp_path, plugin_environment=ahead) as system:
        pod = system.run("echo late; exit 3")
        (end,) = system.ended(pod)
        assert end["exitCode"] == 3, end
        started = calendar.timegm(time.strptime(end["startedAt"][:19], "%Y-%m-%dT%H:%M:%S"))
        assert abs(started - time.time()) < 300, "the site's times are shown as they are"
        assert system.log(pod) == b"late\n"
        assert system.log(pod, Timestamps=True).endswith(b" late\n")
        deleted = system.run("sleep 100")
        system.plugin.delete(deleted)
        system.until(lambda: not system.directory(deleted).exists(), "it is removed")
