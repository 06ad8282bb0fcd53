"""The operator's settings: a file, the environment over it, and the page that explains them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kueue_nats.spec.settings import (
    Settings,
    from_environment,
    home_kubeconfig,
    keys,
    load,
    own_namespace,
)
from templates.common.errors import ConfigError
from tests.support.sources import REPO

PAGE = REPO / "docs" / "kueue-settings.md"


def test_nothing_has_to_be_said() -> None:
    settings = load("", "", {})
    assert settings == Settings()
    assert settings.nats.servers == ()


def test_a_variable_wins_over_the_file() -> None:
    variables = {"INTERLINK_POLL_S": "7", "INTERLINK_NATS_SERVERS": "wss://a, nats://b"}
    settings = load("poll_s: 3\nlease: ours\n", "f", variables)
    assert (settings.poll_s, settings.lease) == (7, "ours")
    assert settings.nats.servers == ("wss://a", "nats://b")


def test_a_ca_can_be_trusted_without_a_connection_of_its_own() -> None:
    assert load("nats: {ca_file: /ca.pem}", "f", {}).nats.ca_file == "/ca.pem"


def test_the_file_on_the_command_line_wins_over_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("poll_s: 1")
    two.write_text("poll_s: 2")
    monkeypatch.setenv("INTERLINK_KUEUE_CONFIG", str(one))
    assert from_environment().poll_s == 1
    assert from_environment(str(two)).poll_s == 2
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: No such file"):
        from_environment(str(tmp_path / "nowhere.yaml"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[]", "must be a mapping"),
        ("poll: 1", "poll: unknown key (did you mean poll_s?)"),
        ("poll_s: 0", "poll_s: "),
        ("poll_s: 1.5", "poll_s: "),
        ("listen: 8081", "listen: must be text"),
        ("listen: ':8081'", "listen: must be address:port"),
        ("listen: here:http", "listen: must be address:port"),
        ("listen: here:65536", "listen: must be address:port"),
        ("nats: {servers: ['http://x']}", "nats.servers[0]: "),
        ("nats: {user: a}", "nats.servers: must hold at least one URL"),
        ("nats: {token_file: /t}", "nats.servers: must hold at least one URL"),
        ("nats: {servers: ['nats://x'], user: a}", "nats.user: needs a password_file"),
        ("kubeconfig: relative", "kubeconfig: "),
        ("logging: {level: loud}", "logging.level: "),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, "kueue-nats.yaml", {})
    assert f"kueue-nats.yaml: {what}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_where_the_operator_lives_is_its_own_word_or_default() -> None:
    assert own_namespace(load("namespace: here", "f", {})) == "here"
    assert own_namespace(Settings()) == "default"  # no pod of a cluster runs this test


def test_the_kubeconfig_is_that_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/k")
    assert home_kubeconfig() == "/k"
    monkeypatch.delenv("KUBECONFIG")
    assert home_kubeconfig() == ""


def test_the_page_names_every_key_with_its_type_default_and_meaning() -> None:
    rows = re.findall(
        r"^\| `([a-z_.]+)` \| (.*?) \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE
    )
    expected = []
    for key in keys():
        default = list(key.default) if isinstance(key.default, tuple) else key.default
        shown = default if isinstance(default, str) else json.dumps(default)
        expected.append(
            (key.name, key.type, f"`{shown}`" if default else "empty", key.doc.rstrip("."))
        )
    assert rows == expected


def test_the_example_of_the_page_loads() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    settings = load(example, "example", {})
    assert settings.nats.servers and settings.logging.format == "json"
