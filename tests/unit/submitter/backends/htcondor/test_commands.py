"""HTCondor's programs find a valid token, or are not started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats as nats_py
import pytest
from nats.js.api import KeyValueConfig

from submitter.backends.htcondor.commands import HTCondorCommands
from submitter.backends.htcondor.options import load
from submitter.common.errors import BackendUnavailable
from templates.nats import subjects
from templates.protocol import publications
from templates.protocol.publications import Resources
from tests.support import oidc
from tests.support.nats_server import NatsServer
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import POOL, Centre, Submitter, eventually, job_of


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oidc.Issuer]:
    with oidc.running(tmp_path_factory.mktemp("issuer")) as one:
        one.clients["us"] = "word"
        yield one


def made(issuer: oidc.Issuer, tmp_path: Path, **more: Any) -> HTCondorCommands:
    """Commands of which condor_q says what it finds."""
    program = tmp_path / "condor_q"
    program.write_text(
        f'#!/bin/bash\necho started >>{tmp_path}/started\ncat "$BEARER_TOKEN_FILE"\n'
        'echo " $_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS"'
    )
    program.chmod(0o755)
    secret = tmp_path / "secret"
    secret.write_text("word")
    tokens = {"issuer": issuer.url, "ca_file": issuer.ca_file, "client_id": "us"}
    tokens["client_secret_file"] = str(secret)
    raw = {"programs": {"condor_q": str(program)}, "tokens": {**tokens, **more}}
    return HTCondorCommands(load(raw, "site"), str(tmp_path))


def test_a_program_finds_a_token(issuer: oidc.Issuer, tmp_path: Path) -> None:
    commands = made(issuer, tmp_path)
    first = commands.query("condor_q")
    token, _, methods = first.strip().partition(" ")
    assert (token.count("."), methods) == (2, "SCITOKENS")
    assert commands.run("condor_q", []) == first


def test_none_is_started_without(issuer: oidc.Issuer, tmp_path: Path) -> None:
    commands = made(issuer, tmp_path, client_id="somebody")
    for call in (lambda: commands.query("condor_q"), lambda: commands.run("condor_q", [])):
        with pytest.raises(BackendUnavailable, match=r"no valid token: .* refuses: invalid_client"):
            call()
    assert not (tmp_path / "started").exists()
    assert commands.responding_for_s() == 0


# --- what others hear of it -----------------------------------------------------------------------


def test_a_pool_says_that_its_token_is_refused(
    issuer: oidc.Issuer, start: Start, centre: Centre, tmp_path: Path
) -> None:
    """In what it offers and at the pod that waits; it goes on by itself when that is mended."""
    secret, machines = tmp_path / "secret", tmp_path / "condor_status"
    secret.write_text("other word")
    machines.write_text('#!/bin/bash\necho "[]"')
    machines.chmod(0o755)
    tokens = {"issuer": issuer.url, "ca_file": issuer.ca_file, "client_id": "us"}
    tokens["client_secret_file"] = str(secret)
    options = {"tokens": tokens, "programs": {"condor_status": str(machines)}}
    submitter = start(backend="htcondor", options=options, resources={"pods": "5"})

    def last() -> Resources:
        told = [message for kind, message in centre.others if kind == subjects.RESOURCES]
        return publications.read_resources(told[-1], POOL)

    refused = f"no valid token: the issuer {issuer.url} refuses: invalid_client: not ..."
    assert eventually(last).trouble == refused
    assert last().quotas == {"pods": "5"}
    job = job_of()
    assert centre.create(job)["state"] == "journaled"
    waits = centre.until(job.name, lambda status: status.containers[0].state.message)
    assert refused in waits.containers[0].state.message
    secret.write_text("word")
    eventually(lambda: not last().trouble)
    assert last().quotas["cpu"] == "0"
    assert "other word" not in submitter.words()


def test_submitters_of_one_client_agree_in_a_bucket(
    issuer: oidc.Issuer, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Two processes in folders of their own: the issuer is asked by one of them."""
    store = {"store_dir": str(tmp_path / "store")}
    server = NatsServer(tmp_path / "nats", jetstream=store).start()
    centre = Centre(server)
    started: list[Submitter] = []
    issuer.refresh_tokens.clear()
    issuer.asked.clear()
    (tmp_path / "refresh").write_text(issuer.new_refresh_token("somebody"))
    (tmp_path / "secret").write_text("word")
    (tmp_path / "condor_status").write_text('#!/bin/bash\necho "[]"')
    (tmp_path / "condor_status").chmod(0o755)
    tokens = {"issuer": issuer.url, "ca_file": issuer.ca_file, "client_id": "us"}
    tokens |= {"client_secret_file": f"{tmp_path}/secret", "bucket": "tokens-here"}
    tokens["refresh_token_file"] = f"{tmp_path}/refresh"
    options = {"tokens": tokens, "programs": {"condor_status": f"{tmp_path}/condor_status"}}
    try:
        for name in ("one", "other"):
            folder = tmp_path_factory.mktemp(name)
            started.append(Submitter(server, folder, backend="htcondor", options=options))
            started[-1].until_ready(centre)
        words = "the bucket tokens-here: there is no such bucket"
        for submitter in started:
            eventually(lambda submitter=submitter: words in submitter.words())
        centre.do(_make_bucket(server.url))
        files = [submitter.directory / "token" for submitter in started]
        eventually(lambda: all(file.exists() for file in files))
        assert files[0].read_text() == files[1].read_text()
        assert [asked["given"] for asked in issuer.asked] == ["token"]
    finally:
        for submitter in started:
            submitter.stop(signal.SIGKILL)
        centre.close()
        server.stop()


async def _make_bucket(url: str) -> None:
    client = await nats_py.connect(url)
    await client.jetstream().create_key_value(KeyValueConfig("tokens-here", history=1, direct=True))
    await client.close()
