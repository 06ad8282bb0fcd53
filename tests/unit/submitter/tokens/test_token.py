"""Tokens of a real issuer over TLS: renewed ahead of time, by one of several, and refused."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from submitter.common.errors import BackendUnavailable
from submitter.tokens.file_record import FileRecord
from submitter.tokens.options import TokenOptions
from submitter.tokens.token import LEASE_S, LONGEST_PAUSE_S, Tokens, make_tokens
from tests.support import oidc

LIFE_S = 20.0


class Clock:
    """One that tests turn."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[oidc.Issuer]:
    with oidc.running(tmp_path_factory.mktemp("issuer")) as one:
        yield one


@pytest.fixture
def issuer(server: oidc.Issuer) -> oidc.Issuer:
    server.lifetime_s, server.rotates, server.fails_with = LIFE_S, True, None
    server.clients = {"us": "pass word"}
    server.refresh_tokens.clear()
    server.asked.clear()
    return server


@pytest.fixture
def options(issuer: oidc.Issuer, tmp_path: Path) -> TokenOptions:
    """Of a client that asks for itself."""
    (tmp_path / "secret").write_text("pass word\n")
    return TokenOptions(
        issuer=issuer.url,
        ca_file=issuer.ca_file,
        client_id="us",
        client_secret_file=str(tmp_path / "secret"),
        audience="ce",
    )


@pytest.fixture
def refreshing(issuer: oidc.Issuer, options: TokenOptions, tmp_path: Path) -> TokenOptions:
    """Of one that was given a refresh token."""
    (tmp_path / "refresh").write_text(issuer.new_refresh_token("somebody"))
    return replace(options, refresh_token_file=str(tmp_path / "refresh"))


def one(options: TokenOptions, tmp_path: Path, clock: Clock, name: str = "token") -> Tokens:
    return Tokens(options, FileRecord(str(tmp_path / "shared")), str(tmp_path / name), clock)


def test_it_is_there_and_nobody_elses(
    options: TokenOptions, issuer: oidc.Issuer, tmp_path: Path
) -> None:
    one(options, tmp_path, Clock()).ensure()
    for name in ("token", "shared"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert (tmp_path / "token").read_text().count(".") == 2
    assert {path.name for path in tmp_path.iterdir()} == {
        "secret",
        "token",
        "shared",
        "shared.lock",
    }
    (asked,) = issuer.asked
    assert asked == {
        "grant_type": "client_credentials",
        "scope": "compute.read compute.create compute.modify compute.cancel",
        "audience": "ce",
        "client": "us",
        "given": "token",
    }


def test_it_is_renewed_ahead_of_time(
    options: TokenOptions, issuer: oidc.Issuer, tmp_path: Path
) -> None:
    clock = Clock()
    tokens = one(options, tmp_path, clock)
    for second in range(200):
        clock.now = 1000.0 + second
        tokens.ensure()
        assert (tmp_path / "token").read_text()
    assert 200 / (0.75 * LIFE_S + 1) <= len(issuer.asked) <= 200 / (0.55 * LIFE_S) + 1


def test_a_restart_goes_on_with_what_is_there(
    refreshing: TokenOptions, issuer: oidc.Issuer, tmp_path: Path
) -> None:
    clock = Clock()
    one(refreshing, tmp_path, clock).ensure()
    again = one(refreshing, tmp_path, clock)
    again.ensure()
    assert len(issuer.asked) == 1
    clock.now += LIFE_S
    again.ensure()
    assert [asked["given"] for asked in issuer.asked] == ["token", "token"]
    assert issuer.asked[0]["refresh_token"] != issuer.asked[1]["refresh_token"]


def test_an_issuer_that_keeps_refresh_tokens(
    refreshing: TokenOptions, issuer: oidc.Issuer, tmp_path: Path
) -> None:
    issuer.rotates = False
    clock = Clock()
    tokens = one(refreshing, tmp_path, clock)
    for _ in range(3):
        tokens.ensure()
        clock.now += LIFE_S
    assert len({asked["refresh_token"] for asked in issuer.asked}) == 1


# --- several --------------------------------------------------------------------------------------


def test_several_ask_one_after_the_other(
    refreshing: TokenOptions, issuer: oidc.Issuer, tmp_path: Path
) -> None:
    """Each refresh token is good once: whoever asked with an old one would be refused."""
    clock = Clock()
    several = [one(refreshing, tmp_path, clock, f"token-{n}") for n in range(3)]
    failed: list[str] = []

    def use(tokens: Tokens) -> None:
        try:
            tokens.ensure()
        except BackendUnavailable as error:  # another one is at it
            failed.append(str(error))

    for round_ in range(30):
        threads = [threading.Thread(target=use, args=[tokens]) for tokens in several]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        clock.now += 2.0
        if round_ > 0:
            assert len({(tmp_path / f"token-{n}").read_text() for n in range(3)}) <= 2
    assert set(failed) <= {"no valid token: it is being renewed"}
    assert {asked["given"] for asked in issuer.asked} == {"token"}
    assert len(issuer.asked) <= 60 / (0.55 * LIFE_S) + 1


def test_who_dies_while_asking_is_waited_for(
    options: TokenOptions, issuer: oidc.Issuer, tmp_path: Path
) -> None:
    clock = Clock()
    record = FileRecord(str(tmp_path / "shared"))
    record.swap(
        record.read()[1], json.dumps({"holder": "x", "held_until": 1000 + LEASE_S}).encode()
    )
    tokens = one(options, tmp_path, clock)
    with pytest.raises(BackendUnavailable, match="it is being renewed"):
        tokens.ensure()
    assert issuer.asked == []
    clock.now += LEASE_S
    tokens.ensure()


def test_the_record_of_a_pool(options: TokenOptions, issuer: oidc.Issuer, tmp_path: Path) -> None:
    assert make_tokens(TokenOptions(), str(tmp_path)) is None
    share = tmp_path / "share"
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in (share, *folders):
        folder.mkdir()
    shared = replace(options, share=str(share))
    for folder in folders:
        tokens = make_tokens(shared, str(folder))
        assert tokens is not None
        tokens.ensure()
    assert len(issuer.asked) == 1
    assert (folders[0] / "token").read_text() == (folders[1] / "token").read_text()


# --- trouble --------------------------------------------------------------------------------------


def test_a_valid_token_outlives_trouble(
    options: TokenOptions, issuer: oidc.Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    tokens = one(options, tmp_path, clock)
    tokens.ensure()
    issuer.fails_with = (503, "temporarily_unavailable")
    clock.now += 0.8 * LIFE_S
    tokens.ensure()
    assert "has no time" in tokens.error
    clock.now += 0.2 * LIFE_S
    with pytest.raises(BackendUnavailable, match=r"no valid token: the issuer .* has no time"):
        tokens.ensure()
    issuer.fails_with = None
    clock.now += LONGEST_PAUSE_S
    tokens.ensure()
    assert tokens.error == ""
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert "is not renewed" in said[0]
    assert said[1] == "the token of us is renewed again"


def test_it_does_not_insist(options: TokenOptions, issuer: oidc.Issuer, tmp_path: Path) -> None:
    issuer.fails_with = (500, "")
    clock = Clock()
    tokens = one(options, tmp_path, clock)
    for second in range(600):
        clock.now = 1000.0 + second
        with pytest.raises(BackendUnavailable):
            tokens.ensure()
    assert 10 <= len(issuer.asked) <= 40


def test_a_refused_token_says_what_to_do(
    refreshing: TokenOptions, issuer: oidc.Issuer, tmp_path: Path
) -> None:
    clock = Clock()
    tokens = one(refreshing, tmp_path, clock)
    tokens.ensure()
    issuer.refresh_tokens.clear()  # somebody has withdrawn it
    clock.now += LIFE_S
    with pytest.raises(BackendUnavailable) as caught:
        tokens.ensure()
    file = refreshing.refresh_token_file
    assert f"invalid_grant: ... is used; a new refresh token belongs in {file}" in str(caught.value)
    Path(file).write_text(issuer.new_refresh_token("somebody"))
    clock.now += LONGEST_PAUSE_S
    tokens.ensure()


@pytest.mark.parametrize("content", [None, " \n"])
def test_no_secret(
    options: TokenOptions, tmp_path: Path, issuer: oidc.Issuer, content: str | None
) -> None:
    file = Path(options.client_secret_file)
    file.unlink()
    if content is not None:
        file.write_text(content)
    why = "is empty" if content else "No such file or directory"
    with pytest.raises(BackendUnavailable, match=f"{file}: {why}"):
        one(options, tmp_path, Clock()).ensure()


def test_a_secret_that_is_wrong_is_not_told(
    options: TokenOptions, tmp_path: Path, issuer: oidc.Issuer
) -> None:
    Path(options.client_secret_file).write_text("other word")
    with pytest.raises(BackendUnavailable) as caught:
        one(options, tmp_path, Clock()).ensure()
    assert "refuses: invalid_client: not ..." in str(caught.value)


def test_an_issuer_that_is_not_believed(options: TokenOptions, tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match="certificate verify failed"):
        one(replace(options, ca_file=""), tmp_path, Clock()).ensure()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"token": 5, "renew": "x", "until": "y"}'])
def test_a_record_that_cannot_be_read_counts_as_none(
    options: TokenOptions, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "shared").write_bytes(content)
    one(options, tmp_path, Clock()).ensure()


def test_what_could_not_be_told_is_told_later(
    refreshing: TokenOptions, issuer: oidc.Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for a moment, just after the old refresh token was used up."""
    clock = Clock()
    tokens, other = (one(refreshing, tmp_path, clock, name) for name in ("token", "other"))
    tokens.ensure()
    clock.now += LIFE_S
    swap = FileRecord.swap

    def full(self: FileRecord, version: str, content: bytes) -> str | None:
        if b'"holder": ""' in content:
            raise OSError(28, "No space left on device")
        return swap(self, version, content)

    monkeypatch.setattr(FileRecord, "swap", full)
    tokens.ensure()
    assert "No space left on device" in tokens.error
    monkeypatch.setattr(FileRecord, "swap", swap)
    clock.now += 2.0
    tokens.ensure()
    other.ensure()
    assert (tmp_path / "other").read_text() == (tmp_path / "token").read_text()
    clock.now += LIFE_S
    other.ensure()
    assert {asked["given"] for asked in issuer.asked} == {"token"}
