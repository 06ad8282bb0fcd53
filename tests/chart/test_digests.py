"""scripts/images/digests: what helm is told is what a registry has."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import MINIMAL, REPO, containers, pods, text_of
from tests.support.registry import ADDRESS, Registry, call

SCRIPT = REPO / "scripts" / "images" / "digests"
OURS = ("interlink-nats-plugin", "kueue-nats", "interlink-nats-submitter-condor")


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    found = Registry()
    found.start()
    yield found
    found.stop()


def ask(*files: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/root", "SSL_CERT_FILE": call("ca").strip()}
    words = [str(SCRIPT), *map(str, files)]
    return subprocess.run(words, check=False, capture_output=True, text=True, env=environment)


def values_at(registry: Registry, folder: Path) -> dict[str, Any]:
    """Values by which all images are in one registry, and they are there."""
    for name in OURS:
        registry.push("busybox", f"ours/{name}")

    def image() -> dict[str, str]:
        return {"repository": f"{ADDRESS}/{registry.new()}", "tag": "1"}

    return {
        **MINIMAL,
        "images": {"registry": f"{ADDRESS}/ours", "tag": "1"},
        "nats": {"image": image()},
        "redis": {"enabled": True, "image": image()},
        "oauth2Proxy": {"image": image()},
        "virtualNode": {
            "interlink": {"image": image()},
            "virtualKubelet": {"image": image()},
        },
    }


def test_every_image_of_a_release_is_named_by_what_it_is(
    registry: Registry, tmp_path: Path
) -> None:
    values = values_at(registry, tmp_path)
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = ask(tmp_path / "values.yaml")
    assert done.returncode == 0, done.stderr
    (tmp_path / "digests.yaml").write_text(done.stdout)
    digest = registry.digest("ours/kueue-nats")
    text = text_of(values, "--values", str(tmp_path / "digests.yaml"))
    specs = pods([found for found in yaml.safe_load_all(text) if found])
    every = [container["image"] for spec in specs.values() for container in containers(spec)]
    images = [image for image in every if "busybox:" not in image]  # what "helm test" runs
    assert len(images) == 7
    assert {image.partition("@")[2] for image in images} == {digest}


def test_an_image_that_is_not_there_is_named(registry: Registry, tmp_path: Path) -> None:
    values = values_at(registry, tmp_path)
    values["nats"]["image"]["tag"] = "none"
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    done = ask(tmp_path / "values.yaml")
    assert done.returncode == 1
    assert f"{values['nats']['image']['repository']}:none: " in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_registry_of_ones_own_it_says_so() -> None:
    done = ask()
    assert (done.returncode, done.stderr.strip()) == (
        1,
        "images.registry: say where your images are, in a file of values",
    )
