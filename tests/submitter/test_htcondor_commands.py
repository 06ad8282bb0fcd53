"""HTCondor's programs find a valid token, or are not started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from submitter.backends.htcondor_commands import Commands
from submitter.backends.htcondor_options import load
from submitter.errors import BackendUnavailable
from templates import publications, subjects
from templates.publications import Resources
from tests import oidc
from tests.submitter.conftest import Start
from tests.submitter.rig import POOL, Centre, eventually, job_of


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oidc.Issuer]:
    with oidc.running(tmp_path_factory.mktemp("issuer")) as one:
        one.clients["us"] = "word"
        yield one


def made(issuer: oidc.Issuer, tmp_path: Path, **more: Any) -> Commands:
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
    return Commands(load(raw, "site"), str(tmp_path))


def test_a_program_finds_a_token(issuer: oidc.Issuer, tmp_path: Path) -> None:
    commands = made(issuer, tmp_path)
    first = commands.ask("condor_q")
    token, _, methods = first.strip().partition(" ")
    assert (token.count("."), methods) == (2, "SCITOKENS")
    assert commands.run("condor_q", []) == first


def test_none_is_started_without(issuer: oidc.Issuer, tmp_path: Path) -> None:
    commands = made(issuer, tmp_path, client_id="somebody")
    for ask in (lambda: commands.ask("condor_q"), lambda: commands.run("condor_q", [])):
        with pytest.raises(BackendUnavailable, match=r"no valid token: .* refuses: invalid_client"):
            ask()
    assert not (tmp_path / "started").exists()
    assert commands.answers_for_s() == 0


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
