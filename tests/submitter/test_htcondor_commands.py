"""HTCondor's programs find a valid token, or are not started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from submitter.backends.htcondor_commands import Commands
from submitter.backends.htcondor_options import load
from submitter.errors import BackendUnavailable
from tests import oidc


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
