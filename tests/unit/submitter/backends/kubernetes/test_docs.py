"""docs/kubernetes.md and docs/podman.md name the options that there are; their examples load."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from submitter.backends.kubernetes import options as kubernetes_options
from submitter.backends.podman.backend import PodmanBackend
from submitter.cli.config_file import load
from submitter.config.settings import Pool
from templates.common.errors import ConfigError
from templates.settings.reference import keys
from templates.site.build_config import BuildConfig, Runtime
from tests.house.test_docs import default_of
from tests.support.sources import REPO

TEXT = (REPO / "docs" / "kubernetes.md").read_text(encoding="utf-8")


def example(page: str, folder: Path) -> Pool:
    text = (REPO / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (found,) = (block for block in blocks if "backend: " in block)
    (pool,) = load(textwrap.dedent(found), "example", folder).pools
    return pool


def test_options() -> None:
    part = TEXT.split("\n## Options\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    listed = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert listed == [
        [f"`{key.name}`", key.type, default_of(key), key.doc.replace("``", "`")]
        for key in keys(kubernetes_options.Options())
    ]


def test_the_examples_load(tmp_path: Path) -> None:
    assert kubernetes_options.load(example("kubernetes.md", tmp_path)).namespace == "interlink"
    assert PodmanBackend(example("podman.md", tmp_path)).capacity()["cpu"] == "16"


@pytest.mark.parametrize(
    ("options", "more", "words"),
    [
        ({"capacity": "quota"}, {}, "options: quota: must name the ResourceQuota that is offered"),
        ({}, {}, "resources: must say what the pool offers"),
        ({"name_space": "x"}, {}, "options: name_space: unknown key (did you mean namespace?)"),
        (
            {},
            {"build": BuildConfig(runtime=Runtime("host"))},
            "build.runtime.name: must be kubernetes, as the backend is, not host",
        ),
    ],
)
def test_mistakes(options: dict[str, object], more: dict[str, BuildConfig], words: str) -> None:
    build = more.get("build", BuildConfig(runtime=Runtime("kubernetes")))
    pool = Pool("p", "/pool", "kubernetes", options, build=build)
    with pytest.raises(ConfigError) as caught:
        kubernetes_options.load(pool)
    assert str(caught.value) == f"pool p: {words}"
