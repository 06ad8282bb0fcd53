"""What ``check`` says of jobs that run as the submitter's user."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from submitter.cli import check_trust, config_file
from submitter.cli.report import Report
from templates.nats.options import LinkSettings

pytestmark = pytest.mark.security

OTHER_USER = 65534
KEY = "/etc/interlink/nats.nkey"


class Trust:
    """A pool, and what the check says of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "submitter.yaml"
        self.nats: dict[str, Any] = {"servers": ["wss://x"], "nkey_file": KEY}
        self.options = LinkSettings((), secret="held")

    def lines(self, **pool: Any) -> list[str]:
        one = {"name": "p", "directory": "/pool", "policy": {"namespaces": ["mine"]}, **pool}
        settings = config_file.load(yaml.safe_dump({"nats": self.nats, "pools": [one]}), "s.yaml")
        written: list[str] = []
        check_trust.check(self.path, settings, self.options, Report(written.append))
        return [line.rstrip() for line in written]


@pytest.fixture
def trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trust:
    """Of a user who can neither read nor change anything that matters."""
    monkeypatch.setattr(check_trust, "is_root", lambda: False)
    for name in ("may_read", "may_change"):
        monkeypatch.setattr(check_trust, name, lambda path: False)
    scope = tmp_path / "ptrace_scope"
    scope.write_text("1\n")
    monkeypatch.setattr(check_trust, "PTRACE_SCOPE", str(scope))
    return Trust(tmp_path)


def test_a_key_that_root_hands_over(trust: Trust) -> None:
    assert trust.lines() == [
        f"ok    nats.nkey_file: {KEY}, handed over by root: no job can read it"
    ]


def test_a_key_that_jobs_can_read(trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_trust, "may_read", lambda path: path == KEY)
    (line,) = trust.lines()
    assert line == (
        f"WRONG nats.nkey_file: jobs, which run as this user, could read {KEY}. To mend it: "
        f"chown root {KEY}, chmod 600 {KEY}, and StandardInput=file:{KEY} in the unit"
    )


@pytest.mark.parametrize("which", ["path", "folder", "program"])
def test_what_leads_to_the_key(trust: Trust, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    name = {"path": trust.path, "folder": trust.path.parent, "program": sys.prefix}[which]
    monkeypatch.setattr(check_trust, "may_change", lambda path: path == str(name))
    (wrong,) = [line for line in trust.lines() if line.startswith("WRONG")]
    assert wrong.startswith(f"WRONG {name}: jobs, which run as this user, could change it.")
    assert wrong.endswith(f"To mend it: chown root {name}, and chmod go-w {name}")


@pytest.mark.parametrize("namespaces", [["*"], ["a", "b"], ["chem-*"], ["x?"], ["[ab]"]])
def test_secrets_of_other_namespaces(trust: Trust, namespaces: list[str]) -> None:
    (_, line) = trust.lines(policy={"namespaces": namespaces})
    assert line.startswith("WRONG pool p: other jobs: with runtime host a job could read the Secre")
    assert "To mend it: name one namespace in policy.namespaces" in line
    confined = {"runtime": {"name": "apptainer"}}
    assert len(trust.lines(policy={"namespaces": namespaces}, build=confined)) == 1


@pytest.mark.parametrize("path", ["/", "/pool", "/pool/jobs", "/etc/interlink", "/etc/"])
def test_host_paths_that_hold_what_is_private(trust: Trust, path: str) -> None:
    build = {"runtime": {"name": "apptainer"}, "volumes": {"host_paths": [{"path": path}]}}
    wrong = [line for line in trust.lines(build=build) if line.startswith("WRONG")]
    assert wrong
    assert all(f"pods may mount {path.rstrip('/') or '/'}" in line for line in wrong)
    build["volumes"] = {"host_paths": [{"path": "/pools"}, {"path": "/etc/interlinks"}]}
    assert len(trust.lines(build=build)) == 1


@pytest.mark.parametrize("content", ["0\n", None])
def test_memory_that_jobs_can_look_into(trust: Trust, content: str) -> None:
    scope = Path(check_trust.PTRACE_SCOPE)
    scope.unlink()
    if content:
        scope.write_text(content)
    (_, line) = trust.lines()
    assert line.startswith("WRONG pool p: memory: jobs on this machine could look into")
    assert "sysctl -w kernel.yama.ptrace_scope=1" in line
    elsewhere = {"backend": "slurm", "build": {"runtime": {"name": "apptainer"}}}
    assert len(trust.lines(**elsewhere)) == 1


def test_jobs_of_root(trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_trust, "is_root", lambda: True)
    (line,) = trust.lines()
    assert re.match("WRONG user: all jobs would run as root. To mend it: ", line)


@pytest.mark.parametrize(
    "pool",
    [
        {"backend": "kubernetes", "options": {"namespace": "x"}},
        {"backend": "htcondor", "options": {"shared": False}},
    ],
)
def test_jobs_elsewhere_are_nobodys_here(trust: Trust, pool: dict[str, Any]) -> None:
    assert trust.lines(**pool) == []


@pytest.fixture
def _another_user() -> Iterator[None]:
    """The tests' own, unless that is root."""
    if os.geteuid() == 0:
        os.seteuid(OTHER_USER)
        yield
        os.seteuid(0)
    else:
        yield


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o000, 0o644])
def test_a_file_of_the_users_own_is_read_whatever_its_mode(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(mode)
    assert check_trust.may_read(str(file))
    assert check_trust.may_change(str(file))


@pytest.mark.usefixtures("_another_user")
def test_a_file_of_roots() -> None:
    assert not check_trust.may_read("/etc/shadow")
    assert check_trust.may_read("/etc/passwd")
    assert not check_trust.may_change("/etc/passwd")
    assert not check_trust.may_change("/etc")
    assert not check_trust.may_read("/nowhere")
