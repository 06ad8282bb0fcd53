"""``interlink-submitter check`` beside a real server: it finds each mistake, and how to mend it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from submitter.cli import check, check_files, check_nats, check_trust
from submitter.cli.check_files import file_system_type
from submitter.cli.report import Report
from submitter.config.settings import Pool
from templates.nats import subjects
from templates.nats.options import LinkSettings
from templates.site.build_config import BuildConfig, Runtime, Script
from tests.support import oidc
from tests.support.nats_server import NatsServer
from tests.support.nats_users import Site
from tests.support.sources import REPO


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("nats"))
    made("add", "alpha", "a1")
    made.server.start()
    yield made
    made.server.stop()


class Case:
    """A site's files, to be spoilt by a test."""

    def __init__(self, folder: Path, site: Site) -> None:
        self.folder, self.site = folder, site
        self.secret = folder / "nats.nkey"
        self.secret.write_text(Path(site.seed_file("alpha")).read_text())
        self.secret.chmod(0o600)
        (folder / "jobs").mkdir()
        self.pool: dict[str, Any] = {"name": "a1", "directory": str(folder / "jobs")}
        self.pool["policy"] = {"namespaces": ["tests"]}
        self.nats: dict[str, Any] = {
            "servers": [site.server.websocket_url],
            "inbox_prefix": "_INBOX_alpha",
            "nkey_file": str(self.secret),
            "ca_file": site.server.ca_file,
        }

    def lines(self) -> list[str]:
        """The report; that the exit code agrees with it is part of every test."""
        path = self.folder / "submitter.yaml"
        path.write_text(yaml.safe_dump({"nats": self.nats, "pools": [self.pool]}))
        path.chmod(0o640)
        written: list[str] = []
        code = asyncio.run(check.run(path, written.append))
        assert code == any(line.startswith("WRONG") for line in written)
        assert all(line.count("\n") == 1 and line.endswith("\n") for line in written)
        assert (self.secret.read_text().strip() or "nothing") not in "".join(written)
        return [line.rstrip() for line in written]

    def mistakes(self) -> list[str]:
        return [line for line in self.lines() if line.startswith("WRONG")]


@pytest.fixture
def case(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> Case:
    # What is free on the machine of the tests is not what they are about.
    monkeypatch.setattr(check_files, "LEAST_FREE_BYTES", 1)
    monkeypatch.setattr(check_files, "LEAST_FREE_FILES", 1)
    monkeypatch.setattr(check_files, "IN_MEMORY", ("ramfs",))
    # Whoever runs the tests owns these files, or is root: test_check_trust.py.
    monkeypatch.setattr(check_trust, "check", lambda *_: None)
    return Case(tmp_path, site)


def test_a_site_that_is_well_is_told_so(case: Case) -> None:
    lines = case.lines()
    subjects = [re.sub(r"^ok    |: .*", "", line.replace("wss://", "")) for line in lines]
    assert all(line.startswith("ok    ") for line in lines), lines
    for words in ("configuration", "user", "nats.nkey_file", "nats.ca_file", "pool a1"):
        assert words in subjects
    text = "\n".join(lines)
    for words in ("credentials: accepted (NKey)", "rights: all subjects of the pool", "GiB free"):
        assert words in text
    assert re.search(r"backend host: offers cpu \d+", text)


def test_annotations_that_act_on_the_node_are_listed_where_they_are_on(case: Case) -> None:
    rules = {"annotations": ["*", "pre-exec", "mpi-flags"], "forbidden_annotations": ["mpi-*"]}
    case.pool["build"] = {"rules": rules}
    (line,) = [line for line in case.lines() if line.startswith("note  pool a1: rules")]
    assert line.endswith("pods may act on the node as this user, outside of containers: pre-exec")


def test_it_runs_from_the_command_line(case: Case) -> None:
    case.lines()
    command = [sys.executable, "-m", "submitter", "check", "--config"]
    command.append(str(case.folder / "submitter.yaml"))
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert re.search(r"^ok    pool a1: rights", done.stdout, re.M), done.stdout


def test_a_mistake_in_the_configuration_ends_it(case: Case) -> None:
    case.nats["servers"] = []
    (line,) = case.lines()
    assert re.match(r"WRONG configuration: .*nats.servers: must hold at least one URL\.", line)


# --- files ----------------------------------------------------------------------------------------


def test_a_secret_that_everybody_can_read(case: Case) -> None:
    case.secret.chmod(0o644)
    (line,) = case.mistakes()
    assert line == (
        f"WRONG nats.nkey_file: everybody on this machine can read {case.secret}. To mend it: "
        f"chmod o-rwx {case.secret}, and ask for a new secret"
    )


def test_a_secret_that_is_not_there(case: Case) -> None:
    case.nats["nkey_file"] = "/nowhere/x.nkey"
    lines = case.lines()
    assert lines[2].startswith("WRONG nats.nkey_file: /nowhere/x.nkey: No such file or directory.")
    assert any(line.startswith("note  wss://") for line in lines)


def test_a_secret_that_is_empty(case: Case) -> None:
    case.secret.write_text("\n")
    assert any("is empty" in line for line in case.mistakes())


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_that_is_none(case: Case, content: str) -> None:
    case.nats["ca_file"] = str(case.folder / "ca.pem")
    if content:
        (case.folder / "ca.pem").write_text(content)
    assert case.mistakes()[0].startswith(f"WRONG nats.ca_file: {case.folder}/ca.pem: ")


def test_a_configuration_that_everybody_can_change(tmp_path: Path, site: Site) -> None:
    from submitter.config.settings import Settings

    path = tmp_path / "x.yaml"
    path.write_text("")
    path.chmod(0o666)
    written: list[str] = []
    check_files.check_configuration(path, Settings(), LinkSettings(()), Report(written.append))
    assert written == [
        f"WRONG {path}: everybody on this machine can change it. To mend it: chmod o-w {path}\n"
    ]


def test_a_directory_that_is_not_there(case: Case) -> None:
    case.pool["directory"] = str(case.folder / "gone")
    line = next(line for line in case.mistakes() if "directory" in line)
    assert f"{case.folder}/gone: No such file or directory. " in line
    assert f"mkdir -p {case.folder}/gone" in line


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_directory_of_somebody_else(case: Case) -> None:
    case.lines()
    case.folder.joinpath("jobs").chmod(0o755)
    pid = os.fork()
    if pid == 0:
        os.setgid(65534)
        os.setuid(65534)
        written: list[str] = []
        try:
            pool = Pool(name="a1", directory=case.pool["directory"])
            check_files.check_directory(pool, Report(written.append))
        finally:
            os._exit(0 if "Permission denied" in "".join(written) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_directory_that_everybody_can_write_to(case: Case) -> None:
    folder = Path(case.pool["directory"])
    folder.chmod(0o777)
    (line,) = case.mistakes()
    assert f"{folder}: everybody can write there: chmod o-w {folder}" in line


def test_a_directory_without_room(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_files, "LEAST_FREE_BYTES", 2**70)
    assert any("MiB free" in line for line in case.mistakes())
    monkeypatch.setattr(check_files, "LEAST_FREE_BYTES", 1)
    monkeypatch.setattr(check_files, "LEAST_FREE_FILES", 2**70)
    files = os.statvfs(case.folder).f_files
    assert any("more files" in line for line in case.mistakes()) == bool(files)


def test_a_directory_in_memory(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_files, "IN_MEMORY", (file_system_type(case.pool["directory"]),))
    assert any("all jobs are lost" in line for line in case.mistakes())


def test_where_nodes_must_see_the_directory_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(name="p", directory=str(tmp_path), backend="slurm")
    written: list[str] = []
    for kind in ("xfs", "nfs4"):
        monkeypatch.setattr(check_files, "file_system_type", lambda path, kind=kind: kind)
        check_files.check_directory(pool, Report(written.append))
    assert written[1].startswith("note  pool p: file system: ")
    assert "is on a disk of this machine (xfs): fine where this machine exports it" in written[1]
    assert written[3].startswith("note  pool p: file system: nfs4: every node must see it")


def test_where_nodes_need_not_see_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"shared": False}
    pool = Pool(name="p", directory=str(tmp_path), backend="htcondor", options=options)
    written: list[str] = []
    monkeypatch.setattr(check_files, "file_system_type", lambda path: "xfs")
    check_files.check_directory(pool, Report(written.append))
    assert written[1].startswith("ok    pool p: file system: xfs")


def test_the_kind_of_a_file_system_is_found() -> None:
    assert file_system_type("/proc/self") == "proc"
    assert file_system_type("/sys/kernel") in {"sysfs", "tmpfs", "overlay"}
    assert file_system_type("/") not in {"proc", "unknown"}


# --- NATS -----------------------------------------------------------------------------------------


def test_a_name_that_nobody_knows(case: Case) -> None:
    case.nats["servers"] = ["wss://nats.invalid:443"]
    (line,) = case.mistakes()
    assert line.startswith("WRONG wss://nats.invalid:443: name: nats.invalid is not known here (")


def test_a_port_that_nobody_listens_on(case: Case) -> None:
    case.nats["servers"] = ["wss://127.0.0.1:1", case.site.server.websocket_url]
    (line,) = case.mistakes()  # the rights are tried at the other one
    assert line == (
        "WRONG wss://127.0.0.1:1: port: nothing listens on 127.0.0.1:1. To mend it: start the "
        "server, or correct the port"
    )


def test_a_certificate_of_an_unknown_ca(case: Case) -> None:
    del case.nats["ca_file"]
    (line,) = case.mistakes()
    assert "certificate: not trusted: " in line
    assert line.endswith("name the CA's certificate in nats.ca_file")


def test_a_certificate_for_another_name(case: Case) -> None:
    port = case.site.server.websocket_port
    case.nats["servers"] = [f"wss://{socket.gethostname()}:{port}"]
    if socket.gethostname() == "localhost":
        pytest.skip("this machine is called localhost")
    (line,) = case.mistakes()
    # The server listens on loopback only: where the name means that, TLS is what fails.
    assert "mismatch" in line or "port: " in line or "name: " in line


def test_a_port_without_tls(case: Case) -> None:
    case.nats["servers"] = [f"wss://localhost:{case.site.server.port}"]
    (line,) = case.mistakes()
    assert "certificate: no TLS there" in line


def test_a_key_that_the_server_does_not_know(case: Case) -> None:
    import nkeys

    case.secret.write_text(nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_USER).decode())
    (line,) = case.mistakes()
    assert "credentials: the server refuses who we say we are" in line


def test_a_file_that_holds_no_key(case: Case) -> None:
    case.secret.write_text("hunter2")
    (line,) = case.mistakes()
    assert "credentials: " in line


def test_rights_that_are_missing_are_named(case: Case) -> None:
    case.pool["name"] = "b"
    (line,) = case.mistakes()
    for words in (
        "publish interlink.config.b",
        "publish interlink.status.b",
        "publish interlink.resources.b",
        "publish interlink.requestparts.b.check",
        "subscribe interlink.create.b (queue group b)",
        "subscribe interlink.query.b (queue group b)",
        "subscribe interlink.answerparts.b.check",
        "subscribe interlink.shutdown.b",
    ):
        assert words in line
    assert "interlink.hello" not in line


def test_an_inbox_that_is_not_ours(case: Case) -> None:
    case.nats["inbox_prefix"] = "_INBOX_other"
    assert any("_inbox_other" in line.lower() for line in case.mistakes())


def test_a_password_over_plain_tls_is_tried_too(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    files = {"cert_file": f"{folder}/cert.pem", "key_file": f"{folder}/key.pem"}
    user = {"user": "me", "password": "hunter2"}
    server = NatsServer(folder, tls=files, authorization={"users": [user]}).start()
    try:
        case.secret.write_text("hunter2")
        case.nats = {
            "servers": [f"tls://localhost:{server.port}"],
            "user": "me",
            "password_file": str(case.secret),
            "ca_file": server.ca_file,
        }
        assert case.mistakes() == []
        del case.nats["ca_file"]
        assert "not trusted" in case.mistakes()[0]
        case.secret.write_text("hunter3")
        case.nats["ca_file"] = server.ca_file
        assert "the server refuses who we say we are" in case.mistakes()[0]
    finally:
        server.stop()


def test_a_server_that_never_answers(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_nats, "TIMEOUT_S", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        case.nats["servers"] = [f"wss://127.0.0.1:{silent.getsockname()[1]}"]
        (line,) = case.mistakes()
    assert "no answer from 127.0.0.1" in line


def test_requests_that_meet_a_check_are_put_off(site: Site) -> None:
    """Its subscriptions are where the service's are, if only for a moment."""

    async def attempt() -> None:
        plugin = site.link("plugin")
        await plugin.start()
        assert await plugin.connected(20)
        answers = []
        hears = asyncio.Event()

        async def slow(link: Any) -> None:
            await begun(link)
            if any("query" in wanted.subject for wanted in link._subscriptions):
                answers.append(await plugin.request("a1", "interlink.query.a1", {}, 10))
                hears.set()

        begun = check_nats._connect_once
        check_nats._connect_once = slow
        try:
            (row,) = (row for row in subjects.TABLE if row.kind == subjects.QUERY)
            settings = site.link("alpha")._settings
            assert await check_nats._may_subscribe(row, "interlink", "a1", settings)
        finally:
            check_nats._connect_once = begun
            await plugin.stop()
        assert hears.is_set()
        assert answers[0]["refused"]["retry"] is True

    asyncio.run(attempt())


# --- programs -------------------------------------------------------------------------------------


def script_saying(path: Path, words: str) -> str:
    path.write_text(f"#!/bin/sh\necho '{words}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def programs(pool: Pool) -> list[str]:
    from submitter.cli import check_programs

    written: list[str] = []
    check_programs.check(pool, Report(written.append))
    return written


def test_a_bash_that_is_too_old(tmp_path: Path) -> None:
    old = script_saying(tmp_path / "bash", "GNU bash, version 4.1.2(1)-release")
    pool = Pool(name="p", directory=str(tmp_path), build=BuildConfig(script=Script(bash=old)))
    assert programs(pool)[0].startswith(f"WRONG pool p: bash: {old} is GNU bash, version 4.1.2")


@pytest.mark.parametrize("backend", ["host", "slurm"])
def test_a_runtime_that_is_not_there(tmp_path: Path, backend: str) -> None:
    build = BuildConfig(runtime=Runtime(name="apptainer", executable="/nowhere/apptainer"))
    pool = Pool(name="p", directory=str(tmp_path), backend=backend, build=build)
    line = programs(pool)[1]
    assert line.startswith("WRONG" if backend == "host" else "note")
    assert "/nowhere/apptainer: cannot be started: No such file or directory" in line


def test_a_runtime_that_is_there(tmp_path: Path) -> None:
    program = script_saying(tmp_path / "apptainer", "apptainer version 1.3.4")
    build = BuildConfig(runtime=Runtime(name="apptainer", executable=program))
    pool = Pool(name="p", directory=str(tmp_path), build=build)
    assert programs(pool)[1] == f"ok    pool p: runtime: {program}: apptainer version 1.3.4\n"


def test_options_that_are_wrong(tmp_path: Path) -> None:
    pool = Pool(name="a", directory=str(tmp_path), options={"gpus": "all"})
    assert programs(pool)[2] == (
        "WRONG pool a: backend host: options: gpus: must be a list, not text. To mend it: correct "
        "it: docs/backends.md has the options\n"
    )


@pytest.mark.parametrize("secret", ["word", "other word"])
def test_a_token_of_a_batch_system(tmp_path: Path, secret: str) -> None:
    file = tmp_path / "secret"
    file.write_text(secret)
    with oidc.running(tmp_path) as issuer:
        issuer.clients["us"] = "word"
        tokens = {"issuer": issuer.url, "ca_file": issuer.ca_file, "client_id": "us"}
        options = {"tokens": {**tokens, "client_secret_file": str(file)}}
        pool = Pool(name="p", directory=str(tmp_path), backend="htcondor", options=options)
        said = programs(pool)[2:]
    if secret == "word":
        assert said[0].startswith(f"ok    pool p: token: {issuer.url} has given one, valid for ")
        assert said[1].startswith("WRONG pool p: backend htcondor: condor_status")
    else:
        assert said == [
            f"WRONG pool p: token: no valid token: the issuer {issuer.url} refuses: "
            "invalid_client: not .... To mend it: see tokens in docs/htcondor.md\n"
        ]


def test_a_batch_system_that_cannot_be_asked(tmp_path: Path) -> None:
    pool = Pool(name="p", directory=str(tmp_path), backend="nonesuch")
    assert programs(pool)[2].startswith("WRONG pool p: backend nonesuch: ")
