"""scripts/install-submitter, run for real into a directory of its own."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from templates import __version__
from tests.support.sources import REPO

pytestmark = pytest.mark.install

SCRIPT = str(REPO / "scripts" / "install-submitter")
UNIT = "etc/systemd/system/interlink-submitter.service"


def install(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DESTDIR": str(root)}
    environment.pop("PYTHONPATH", None)
    command = [SCRIPT, *options]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd="/", check=False
    )


def program(root: Path) -> list[str]:
    return [str(root / "opt/interlink/current/bin/interlink-submitter")]


def test_installing_upgrading_and_removing(tmp_path: Path) -> None:
    done = install(tmp_path, "--user", "nobody")
    assert done.returncode == 0, done.stderr
    said = subprocess.run(
        [*program(tmp_path), "--version"], capture_output=True, cwd="/", check=True
    )
    assert said.stdout.decode().strip() == f"interlink-submitter {__version__}"

    config = tmp_path / "etc/interlink/submitter.yaml"
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    checked = subprocess.run(
        [*program(tmp_path), "check", "--config", str(config)],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert checked.returncode == 1
    assert checked.stdout.startswith("ok    configuration: ")

    unit = (tmp_path / UNIT).read_text()
    assert "ExecStart=/opt/interlink/current/bin/interlink-submitter " in unit
    assert "@PREFIX@" not in unit
    assert "User=nobody" in (tmp_path / f"{UNIT}.d/10-user.conf").read_text()
    handed = tmp_path / f"{UNIT}.d/20-key.conf"
    assert handed.read_text() == "[Service]\nStandardInput=file:/etc/interlink/nats.nkey\n"
    handed.write_text("[Service]\n# mine\n")

    config.write_text("# mine\n")
    old = os.readlink(tmp_path / "opt/interlink/current")
    again = install(tmp_path, "--user", "nobody")
    assert again.returncode == 0, again.stderr
    assert config.read_text() == "# mine\n"
    assert handed.read_text() == "[Service]\n# mine\n"
    new = os.readlink(tmp_path / "opt/interlink/current")
    kept = {f"versions/{path.name}" for path in (tmp_path / "opt/interlink/versions").iterdir()}
    assert old != new
    assert kept == {old, new}

    gone = install(tmp_path, "--uninstall")
    assert gone.returncode == 0, gone.stderr
    assert config.read_text() == "# mine\n"
    assert not (tmp_path / "opt/interlink").exists()
    assert not (tmp_path / UNIT).exists()
    assert list(REPO.glob("*.egg-info")) == []  # it builds from a copy


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--python", "/bin/false"], "is not a Python 3.9 or later that runs"),
        (["--user", "nobody-at-all"], "there is no user nobody-at-all"),
        (["--source", "/nowhere"], "--source /nowhere is not there"),
        (["--prefix", "relative"], "--prefix must be an absolute path"),
        (["--prefix", "/usr"], "--prefix /usr cannot be"),
        (["--prefix"], "--prefix needs a value"),
        (["--nonsense"], "is not understood"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    tmp_path: Path, options: list[str], words: str
) -> None:
    done = install(tmp_path, *options)
    assert done.returncode != 0
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_failed_upgrade_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "opt/interlink/versions/old/bin").mkdir(parents=True)
    (tmp_path / "opt/interlink/current").symlink_to("versions/old")
    (tmp_path / "broken").mkdir()
    done = install(tmp_path, "--source", str(tmp_path / "broken"))
    assert done.returncode != 0
    assert "pip could not install it" in done.stderr
    assert os.readlink(tmp_path / "opt/interlink/current") == "versions/old"
    assert [path.name for path in (tmp_path / "opt/interlink/versions").iterdir()] == ["old"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "interlink-submitter.service"
    text = (REPO / "scripts" / "interlink-submitter.service").read_text()
    start = re.search(r"^ExecStart=(\S+)", text, re.M)
    assert start is not None
    unit.write_text(text.replace(start[1], "/bin/true").replace("@PREFIX@", "/opt/interlink"))
    command = ["systemd-analyze", "verify", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Younger than some systemd that sites have, which then pauses 5 s each time.
    known = [line for line in done.stderr.splitlines() if str(unit) in line]
    assert [line for line in known if not re.search("RestartSteps|RestartMaxDelaySec", line)] == []


def test_the_unit_lets_jobs_live_and_dead_services_rise() -> None:
    text = (REPO / "scripts" / "interlink-submitter.service").read_text()
    for line in ("Type=notify", "KillMode=process", "Restart=always", "OOMPolicy=continue"):
        assert f"\n{line}\n" in text
    for directive in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables"):
        assert f"\n{directive}=" not in text
