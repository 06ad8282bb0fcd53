"""What gets installed: the packages, their data, and one version everywhere."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import templates
from tests.support.sources import REPO, modules, packages

# Folders with Python in them that are not for installing.
NOT_INSTALLED = {"tests", "build", "dist"}


def config() -> configparser.RawConfigParser:
    cfg = configparser.RawConfigParser()
    cfg.read(REPO / "setup.cfg")
    return cfg


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build a wheel from a copy, so that nothing is left behind among the sources."""
    copy = tmp_path_factory.mktemp("sources")
    for name in ("setup.py", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(REPO / name, copy)
    for top in packages():
        shutil.copytree(REPO / top, copy / top, ignore=shutil.ignore_patterns("__pycache__"))
    # Without isolation setuptools comes from this environment, so that no network is needed.
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--use-pep517"]
    command += ["--no-build-isolation", "--disable-pip-version-check"]
    command += ["--wheel-dir", str(copy / "wheels"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (copy / "wheels").glob("*.whl")
    return zipfile.ZipFile(built)


def test_every_package_is_listed() -> None:
    tops = [p for p in REPO.iterdir() if p.is_dir() and p.name not in NOT_INSTALLED]
    found = [init.parent for top in tops for init in top.glob("__init__.py")]
    assert {path.name for path in found} == set(packages())


def test_every_folder_of_modules_is_a_package() -> None:
    """One without ``__init__.py`` would be left out of what gets installed."""
    assert {
        path.parent for path in modules() if not (path.parent / "__init__.py").exists()
    } == set()


def test_the_wheel_has_every_module_and_every_data_file(wheel: zipfile.ZipFile) -> None:
    wanted = {
        path.relative_to(REPO).as_posix()
        for name in packages()
        for path in (REPO / name).rglob("*")
        if path.suffix in {".py", ".j2"} or path.name == "py.typed"
    }
    assert wanted - set(wheel.namelist()) == set()


def test_the_wheel_has_nothing_but_our_packages(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    ours = set(packages())
    assert {top for top in tops - ours if not top.endswith(".dist-info")} == set()


def test_the_wheel_carries_the_license(wheel: zipfile.ZipFile) -> None:
    assert any(name.endswith("/LICENSE") for name in wheel.namelist())


def test_the_entry_points_exist() -> None:
    for line in config()["options.entry_points"]["console_scripts"].strip().splitlines():
        module, _, function = line.partition("=")[2].strip().partition(":")
        source = (REPO / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8")
        assert re.search(rf"^def {function}\(", source, re.MULTILINE), line


def test_the_changelog_begins_with_this_version() -> None:
    text = (REPO / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(r"^## \[?(\d+\.\d+\.\d+)", text, re.MULTILINE)
    assert heading is not None
    assert heading[1] == templates.__version__


def test_the_license_is_apache() -> None:
    text = (REPO / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert config()["metadata"]["license"] == "Apache-2.0"


def test_ruff_and_setup_agree_on_the_oldest_python() -> None:
    oldest = config()["options"]["python_requires"]
    target = re.search(r'^target-version = "py(\d)(\d+)"', (REPO / "ruff.toml").read_text(), re.M)
    assert target is not None
    assert oldest == f">={target[1]}.{target[2]}"


def test_every_package_says_that_it_is_typed() -> None:
    tops = set(packages())
    assert [top for top in tops if not Path(REPO / top / "py.typed").exists()] == []
