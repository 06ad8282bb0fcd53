"""The plugin's settings: a file, the environment over it, and the page that explains them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plugin_server.common.settings import bind_address, keys, load, variable
from templates.common.errors import ConfigError
from templates.program.settings import link_settings
from tests.support.sources import REPO

SERVERS = {"INTERLINK_NATS_SERVERS": "wss://one:443, nats://two:4222"}
PAGE = REPO / "docs" / "plugin-settings.md"


def from_file(tmp_path: Path, text: str, **variables: str) -> object:
    path = tmp_path / "plugin.yaml"
    path.write_text(text)
    return load({"INTERLINK_PLUGIN_CONFIG": str(path), **variables})


def test_variables_alone_are_enough() -> None:
    settings = load({**SERVERS, "INTERLINK_CREATE_TIMEOUT_S": "30", "INTERLINK_NATS_USER": ""})
    assert settings.nats.servers == ("wss://one:443", "nats://two:4222")
    assert settings.create_timeout_s == 30


def test_a_variable_wins_over_the_file(tmp_path: Path) -> None:
    text = "nats: {servers: ['nats://file:1'], root: team}\ndefault_pool: a\n"
    settings = from_file(tmp_path, text, INTERLINK_DEFAULT_POOL="b", **SERVERS)
    assert settings.default_pool == "b"  # type: ignore[attr-defined]
    assert settings.nats.root == "team"  # type: ignore[attr-defined]
    assert settings.nats.servers[0] == "wss://one:443"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "nats: is missing"),
        ("[]", "must be a mapping of sections, not a list"),
        ("nats: {servers: []}", "nats.servers: must hold at least one URL"),
        ("nats: {servers: ['http://x']}", "nats.servers[0]: "),
        ("nats: {servers: ['nats://x']}\nlisten: 4000", "listen: must be text"),
        ("nats: {servers: ['nats://x']}\nlisten: ':80'", "listen: must be http://address:port"),
        ("nats: {servers: ['nats://x'], user: a}", "nats.user: needs a password_file"),
        ("nats: {servers: ['nats://x'], password_file: /x}", "nats.password_file: needs a user"),
        (
            "nats: {servers: ['nats://x'], token_file: /t, nkey_file: /n}",
            "nats.nkey_file: must not be given together with token_file",
        ),
        ("nats: {servers: ['nats://x']}\ncreate_timeout_s: 120", "must be at most 110"),
        ("nats: {servers: ['nats://x']}\nredis: {url: 'http://x'}", "redis.url: must begin with"),
        (
            "nats: {servers: ['nats://x']}\norphans: {api_server: 'http://x'}",
            "orphans.api_server: must begin with https://, or be in-cluster",
        ),
        (
            "nats: {servers: ['nats://x']}\norphans: {api_server: 'https://x'}",
            "orphans.token_file: is needed with the URL of an API server",
        ),
        (
            "nats: {servers: ['nats://x']}\norphans: {api_server: in-cluster}",
            "plugin.yaml: orphans.api_server: this is no pod of a cluster",
        ),
        ("nats: {servers: ['nats://x']}\nhealth_listen: ':80'", "health_listen: must be address:"),
        (
            "nats: {servers: ['nats://x']}\nhealth_listen: a:0",
            "health_listen: must be address:port",
        ),
        (
            "nats: {servers: ['nats://x']}\nhealth_listen: a:²",
            "health_listen: must be address:port",
        ),
        ("nats: {servers: ['nats://x']}\nwhat: 1", "what: unknown key"),
        ("nats: {servers: ['nats://x']}\ndefault_pool: a.b", "default_pool: must be 1 to 63"),
        ("nats: [", "line 1"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_file(tmp_path, text)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["/does/not/exist", "/", "/dev/null/x"])
def test_a_file_that_cannot_be_read_is_named(path: str) -> None:
    with pytest.raises(ConfigError, match=path):
        load({"INTERLINK_PLUGIN_CONFIG": path})


def test_a_number_in_a_variable_must_be_one() -> None:
    with pytest.raises(ConfigError, match="create_timeout_s"):
        load({**SERVERS, "INTERLINK_CREATE_TIMEOUT_S": "soon"})


@pytest.mark.parametrize(
    ("listen", "bind"),
    [
        ("http://127.0.0.1:4000", "127.0.0.1:4000"),
        ("http://[::1]:4000", "[::1]:4000"),
        ("unix:///run/plugin.sock", "unix:/run/plugin.sock"),
    ],
)
def test_gunicorn_listens_where_it_is_told(listen: str, bind: str) -> None:
    assert bind_address(listen) == bind


def test_in_a_cluster_a_pod_knows_its_api_server_and_its_account() -> None:
    inside = {
        **SERVERS,
        "INTERLINK_ORPHANS_API_SERVER": "in-cluster",
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "6443",
    }
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    orphans = load(inside).orphans
    assert orphans.api_server == "https://10.96.0.1:6443"
    assert (orphans.token_file, orphans.ca_file) == (f"{account}/token", f"{account}/ca.crt")
    other = load(
        {**inside, "KUBERNETES_SERVICE_HOST": "fd00::1", "INTERLINK_ORPHANS_CA_FILE": "/c"}
    )
    assert other.orphans.api_server == "https://[fd00::1]:6443"
    assert other.orphans.ca_file == "/c"


def test_the_connection_gets_all_of_its_settings() -> None:
    nats = load({**SERVERS, "INTERLINK_NATS_CA_FILE": "/ca.pem"}).nats
    assert link_settings(nats, "plugin").ca_file == "/ca.pem"


def test_the_page_names_every_key_with_its_type_and_default() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| (.*?) \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    expected = []
    for key in keys():
        default = "empty" if key.default in ("", ()) else f"`{key.default}`"
        expected.append((key.name, key.type, "required" if key.required else default))
    assert rows == expected


def test_every_key_has_a_variable_of_its_own() -> None:
    names = [variable(key.name) for key in keys()]
    assert len(set(names)) == len(names)
    assert variable("nats.ca_file") == "INTERLINK_NATS_CA_FILE"
