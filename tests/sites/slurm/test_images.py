"""Images under their real names, from a registry that the nodes reach on the site's own network."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from tests.sites.slurm.site import USER_ID, SlurmSite
from tests.sites.slurm.system import SlurmSystem, system_at


@pytest.fixture(scope="module")
def the_system(
    the_site: SlurmSite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmSystem]:
    cache = the_site.home / "images"
    cache.mkdir()
    os.chown(cache, USER_ID, USER_ID)
    images = {"cache": str(cache), "pull_attempts": 2, "pull_backoff_s": 1}
    pool = {"build": {"runtime": {"name": "apptainer"}, "images": images}}
    with system_at(the_site, tmp_path_factory.mktemp("images"), pool=pool) as system:
        yield system


@pytest.fixture
def system(the_system: SlurmSystem, site: SlurmSite) -> SlurmSystem:
    return the_system


def test_an_image_is_pulled_once_for_all_nodes(system: SlurmSystem) -> None:
    nodes = system.slurm.nodes
    log = system.slurm.directory / "log" / "docker-registry.login.out"
    before = len(log.read_text())
    wishes = [{"flags": f"-w {node}"} for node in nodes]
    pods = [system.run("cat /etc/passwd", image="busybox:1.36", says=says) for says in wishes]
    for pod in pods:
        assert system.end(pod) == (0, "")
        assert system.log(pod).startswith(b"root:x:0:0:")
    parts = re.findall(r'"GET /v2/library/busybox/blobs/(\S+) ', log.read_text()[before:])
    assert parts
    assert len(parts) == len(set(parts)), "each part of it came once"


def test_an_image_that_is_not_there(system: SlurmSystem) -> None:
    pod = system.run("true", image="library/nothing-of-this-name:1")
    code, message = system.end(pod)
    assert code == 125
    assert "ErrImagePull: " in message
    assert "nothing-of-this-name" in message
