"""submitter.yaml: what it may say, what is told about its mistakes, and the sample of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from submitter.cli.config_file import EXAMPLE, keys, load, read, sample, secret_files
from submitter.config.settings import Policy, Pool, Settings, Timing
from templates.common.errors import ConfigError
from templates.program.settings import Logging, Nats
from templates.settings.schema import plain
from templates.site.build_config import BuildConfig, Images

MINIMAL: dict[str, Any] = {
    "nats": {"servers": ["wss://nats.example.org"]},
    "pools": [{"name": "cpu", "directory": "/shared/cpu", "policy": {"namespaces": ["*"]}}],
}

NAMES_NONE = "pools[0].policy.namespaces: must be written where build.runtime.name is host"
EVERYONE = Policy(namespaces=("*",))
CPU = Pool(name="cpu", directory="/shared/cpu", policy=EVERYONE)

EVERYTHING = Settings(
    nats=Nats(
        servers=("wss://a.example:443/nats", "tls://b:4443", "nats://c", "ws://[::1]:80"),
        root="lab.interlink",
        inbox_prefix="_INBOX_x.y",
        user="me",
        password_file="/etc/p",
        ca_file="/etc/ca.pem",
    ),
    pools=(
        Pool(
            name="gpu_1",
            directory="/shared/gpu",
            backend="host",
            options={"a": 1, "b": {"c": ["d", 2.5, None, True]}},
            resources={"cpu": "64", "nvidia.com/gpu": "4", "memory": "1.5Ti"},
            labels={"site": "x"},
            taints=("a.io/b=c:NoSchedule", "d:NoExecute"),
            build=BuildConfig(images=Images(cache="/cache")),
            policy=Policy(
                ("team-*",),
                ("r.example/*",),
                ("apptainer",),
                ("flags",),
                ("x",),
                ("--uid",),
                ("/data",),
                True,
                ("--nv",),
                "500m",
                "4Gi",
                0,
                60,
            ),
            timing=Timing(1, 2, 3, 4, 5, 6, 7),
        ),
        Pool(name="other", directory="/shared/other", policy=EVERYONE),
    ),
    logging=Logging("debug", "json"),
)


def settings_of(**changed: Any) -> Settings:
    return load(yaml.safe_dump({**MINIMAL, **changed}), "submitter.yaml")


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, "submitter.yaml")
    line = str(caught.value)
    assert "\n" not in line
    return line


def with_pool(**changed: Any) -> str:
    return yaml.safe_dump({**MINIMAL, "pools": [{**MINIMAL["pools"][0], **changed}]})


def with_nats(**changed: Any) -> str:
    return yaml.safe_dump({**MINIMAL, "nats": {**MINIMAL["nats"], **changed}})


# --- what it may say ------------------------------------------------------------------------------


def test_a_server_and_a_pool_are_enough() -> None:
    assert settings_of() == Settings(
        nats=Nats(servers=("wss://nats.example.org",)),
        pools=(CPU,),
    )


def test_every_key_can_be_set() -> None:
    assert load(yaml.safe_dump(plain(EVERYTHING)), "submitter.yaml") == EVERYTHING


def test_quantities_need_no_quotes() -> None:
    pool = load(with_pool(resources={"cpu": 64, "pods": 0}), "submitter.yaml").pools[0]
    assert pool.resources == {"cpu": "64", "pods": "0"}


def test_an_empty_section_is_like_none() -> None:
    assert settings_of(logging=None) == settings_of()


def test_the_build_configuration_may_stand_inside() -> None:
    pool = load(with_pool(build={"images": {"cache": "/cache"}}), "submitter.yaml").pools[0]
    assert pool.build == BuildConfig(images=Images(cache="/cache"))


@pytest.mark.parametrize("form", ["sub/build.yaml", "{folder}/sub/build.yaml"])
def test_the_build_configuration_may_be_a_file_beside_it(tmp_path: Path, form: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "build.yaml").write_text("images: {cache: /cache}\n")
    (tmp_path / "submitter.yaml").write_text(with_pool(build=form.format(folder=tmp_path)))
    assert read(tmp_path / "submitter.yaml").pools[0].build.images.cache == "/cache"


def test_the_build_configuration_may_be_an_older_file(tmp_path: Path) -> None:
    (tmp_path / "build.toml").write_text('[volumes]\nscratch_area = "/scratch"\n')
    build = load(with_pool(build="build.toml"), "submitter.yaml", tmp_path).pools[0].build
    assert (build.volumes.scratch, build.runtime.name) == ("/scratch", "apptainer")


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "nats: is missing (and 1 more)"),
        ("[]", "must be a mapping of sections, not a list"),
        ("a: b: c", "line 1: mapping values are not allowed here"),
        ("nats: {}\nnats: {}", "line 2: the key nats stands there twice"),
        ("nast: {}", "nast: unknown key (did you mean nats?) (and 2 more)"),
        (with_nats(server="x"), "nats.server: unknown key (did you mean servers?)"),
        (with_nats(servers=[]), "nats.servers: must hold at least one URL"),
        (with_nats(servers="wss://x"), "nats.servers: must be a list, not text"),
        (
            with_nats(servers=["https://x"]),
            "nats.servers[0]: must be a wss://, ws://, tls:// or nats:// URL",
        ),
        (
            with_nats(servers=["wss://me:hunter2@x"]),
            "nats.servers[0]: must not hold a user or a password: name their files below nats",
        ),
        (with_nats(servers=["wss://"]), "nats.servers[0]: must be a wss://"),
        (
            with_nats(root="a..b"),
            "nats.root: must be letters, digits, dashes and underscores, between dots",
        ),
        (with_nats(inbox_prefix="_INBOX.>"), "nats.inbox_prefix: must be letters"),
        (with_nats(inbox_prefix="mine"), "nats.inbox_prefix: must be _INBOX, or begin with"),
        (with_nats(user="me"), "nats.user: needs a password_file"),
        (with_nats(password_file="/p"), "nats.password_file: needs a user"),
        (
            with_nats(token_file="/t", nkey_file="/n"),
            "nats.nkey_file: must not be given together with token_file",
        ),
        (
            with_nats(servers=["nats://x"], ca_file="/ca"),
            "nats.ca_file: is of no use: no server is reached by wss:// or tls://",
        ),
        (with_nats(nkey_file="nats.nkey"), "nats.nkey_file: must be an absolute path"),
        (yaml.safe_dump({**MINIMAL, "pools": []}), "pools: must hold at least one pool"),
        (yaml.safe_dump({**MINIMAL, "pools": {}}), "pools: must be a list, not a mapping"),
        (yaml.safe_dump({**MINIMAL, "pools": ["x"]}), "pools[0]: must be a mapping, not text"),
        (yaml.safe_dump({**MINIMAL, "pools": [{"name": "x"}]}), "pools[0].directory: is missing"),
        (
            yaml.safe_dump({**MINIMAL, "pools": MINIMAL["pools"] * 2}),
            "pools[1].name: is that of pools[0], too",
        ),
        (with_pool(name="a.b"), "pools[0].name: must be 1 to 63 letters, digits, dashes"),
        (with_pool(name=""), "pools[0].name: must be 1 to 63 letters, digits, dashes"),
        (with_pool(name="*"), "pools[0].name: must be 1 to 63 letters, digits, dashes"),
        (with_pool(directory="jobs"), "pools[0].directory: must be an absolute path"),
        (with_pool(backend=5), "pools[0].backend: must be text, not a number"),
        (with_pool(policy={}), NAMES_NONE),
        (with_pool(policy={"namespaces": None}), NAMES_NONE),
        (with_pool(policy={}, backend="slurm"), NAMES_NONE),
        (with_pool(policy={}, build={"images": {"cache": "/x"}}), NAMES_NONE),
        (
            with_pool(backend="hots"),
            "pools[0].backend: unknown batch system (did you mean host?)",
        ),
        (with_pool(backend="abacus"), "pools[0].backend: unknown batch system (known here: host"),
        (with_pool(bakend="host"), "pools[0].bakend: unknown key (did you mean backend?)"),
        (with_pool(policy={"cpus": 1}), "pools[0].policy.cpus: unknown key (did you mean cpu?)"),
        (with_pool(policy={"gpus": -1}), "pools[0].policy.gpus: must be from 0 to 2147483647"),
        (with_pool(policy={"cpu": "many"}), "pools[0].policy.cpu: not a quantity: many"),
        (with_pool(policy={"privileged": "no"}), "pools[0].policy.privileged: must be true or"),
        (with_pool(policy={"host_paths": ["/a/../b"]}), "pools[0].policy.host_paths[0]: must not"),
        (with_pool(policy=None), "pools[0].policy: must not be empty"),
        (with_pool(resources={"cpu": "x"}), "pools[0].resources.cpu: not a quantity: x"),
        (with_pool(resources={"cpu": ""}), "pools[0].resources.cpu: not a quantity: an empty text"),
        (with_pool(resources={"cpu": -1}), "pools[0].resources.cpu: not a quantity: -1"),
        (with_pool(labels={"a": 1}), "pools[0].labels.a: must be text, not a number"),
        (
            with_pool(taints=["a=b:Never"]),
            "pools[0].taints[0]: must be key=value:effect, the effect one of NoSchedule, "
            "PreferNoSchedule, NoExecute",
        ),
        (with_pool(timing={"poll_s": 0}), "pools[0].timing.poll_s: must be from 1 to"),
        (
            with_pool(build={"images": {"cahce": "/x"}}),
            "pools[0].build.images.cahce: unknown key (did you mean cache?)",
        ),
        (with_pool(build=[]), "pools[0].build: must be a mapping, not a list"),
        (with_pool(build="no.yaml"), "pools[0].build: no.yaml: No such file or directory"),
        (with_pool(build="/tmp"), "pools[0].build: /tmp: Is a directory"),
        (with_pool(build="a\0b"), "pools[0].build: a b: embedded null byte"),
        (
            yaml.safe_dump({**MINIMAL, "logging": {"level": "loud"}}),
            "logging.level: must be one of debug, info, warning, error",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(text: str, line: str) -> None:
    assert complaint(text).startswith(f"submitter.yaml: {line}")


def test_a_mistake_in_the_file_of_a_build_configuration_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "build.yaml").write_text("images: {cahce: /x}\n")
    with pytest.raises(ConfigError) as caught:
        load(with_pool(build="build.yaml"), "submitter.yaml", tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/build.yaml: images.cahce: unknown key")


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "submitter.yaml")
    assert str(caught.value) == f"{tmp_path}/submitter.yaml: No such file or directory"


def test_a_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "submitter.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as caught:
        read(tmp_path / "submitter.yaml")
    assert str(caught.value).endswith("is not UTF-8 text")


@pytest.mark.parametrize("namespaces", [["*"], ["physics", "chem-*"], []])
def test_a_pool_that_confines_nothing_names_its_namespaces(namespaces: list[str]) -> None:
    (pool,) = load(with_pool(policy={"namespaces": namespaces}), "submitter.yaml").pools
    assert pool.policy.namespaces == tuple(namespaces)


@pytest.mark.parametrize("runtime", ["apptainer", "singularity", "podman", "kubernetes"])
def test_other_pools_need_not(runtime: str) -> None:
    (pool,) = load(with_pool(policy={}, build={"runtime": {"name": runtime}}), "s.yaml").pools
    assert pool.policy.namespaces is None


def test_no_message_repeats_a_password() -> None:
    assert "hunter2" not in complaint(with_nats(servers=["wss://me:hunter2@x"]))


# --- the sample, and what must be kept secret ---------------------------------------------------


def test_the_sample_loads_to_the_example() -> None:
    assert load(sample(), "sample.yaml") == EXAMPLE


def test_the_sample_gives_the_defaults_for_all_that_has_one() -> None:
    policy = Policy(namespaces=("mynamespace",))
    (shown,) = EXAMPLE.pools
    assert shown == Pool(name=shown.name, directory=shown.directory, policy=policy)
    assert EXAMPLE.logging == Logging()


def test_the_sample_shows_and_explains_every_key() -> None:
    comments = " ".join(re.findall(r"^ *# (.*)$", sample(), re.MULTILINE))
    for key in keys():
        assert key.doc in comments
        assert f"{key.name.rpartition('.')[2]}:" in sample()


def test_every_key_has_its_words() -> None:
    assert all(key.doc.endswith(".") and key.type for key in keys())


def test_secret_files_are_those_that_hold_a_way_in() -> None:
    nats = Nats(user="me", password_file="/p", nkey_file="/n", ca_file="/ca")
    assert secret_files(nats) == (("password_file", "/p"), ("nkey_file", "/n"))


@pytest.mark.parametrize(
    ("policy", "allowed"), [({}, ("/data", "/cvmfs")), ({"host_paths": ["/data"]}, ("/data",))]
)
def test_host_paths_are_those_of_the_build_configuration_unless_the_policy_has_its_own(
    policy: dict[str, Any], allowed: tuple[str, ...]
) -> None:
    build = {"volumes": {"host_paths": [{"path": "/data"}, {"path": "/cvmfs"}]}}
    text = with_pool(policy={"namespaces": ["*"], **policy}, build=build)
    (pool,) = load(text, "submitter.yaml").pools
    assert pool.policy.host_paths == allowed
