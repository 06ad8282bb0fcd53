"""What other users of a node can exchange in folders that they share with jobs is not used."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from templates.resolve.images import find
from templates.translation.build import build
from tests.support.script_runner import (
    ALICE,
    BUSYBOX,
    Finished,
    Site,
    manifests,
    pod,
    sh,
    with_images,
)

STRANGER = 65534

pytestmark = [
    pytest.mark.security,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others"),
]


@pytest.fixture(params=["/var/tmp", "/dev/shm"])
def base(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of the node where everybody may make things: for scratch, and for memory."""
    with tempfile.TemporaryDirectory(prefix="interlink-test-", dir=request.param) as name:
        Path(name).chmod(0o755)
        folder = Path(name, "shared")
        folder.mkdir()
        folder.chmod(0o1777)
        yield folder


class Prepared:
    """A job whose volume is in a folder of the node."""

    def __init__(self, site: Site, base: Path) -> None:
        medium = {"medium": "Memory"} if base.parts[1] == "dev" else {}
        manifest = pod(
            sh("echo ran", volumeMounts=[{"name": "work", "mountPath": "/work"}]),
            volumes=[{"name": "work", "emptyDir": medium}],
        )
        volumes = replace(site.config.volumes, **{"memory" if medium else "scratch": str(base)})
        self.config = replace(site.config, volumes=volumes)
        self.job = build(manifests(manifest), self.config)
        self.site, self.base, self.own = site, base, base / self.job.name

    def run(self) -> Finished:
        return self.site.start_job(self.job, self.config).wait()


@pytest.fixture
def prepared(folder: Path, base: Path) -> Prepared:
    return Prepared(Site("host", folder), base)


def test_a_folder_of_root_is_used_where_others_can_make_things(prepared: Prepared) -> None:
    done = prepared.run()
    assert (done.code, done.log("c0")) == (0, "ran\n")
    assert list(prepared.base.iterdir()) == []


def expose(how: str, base: Path, own: Path) -> str:
    """Let another user exchange things; return how the job calls it."""
    if how == "everybody's":
        base.chmod(0o777)
        return f"everybody can write to {base}"
    if how == "below everybody's":
        base.parent.chmod(0o777)
        return f"everybody can write to {base.parent}"
    if how == "made by a stranger":
        own.mkdir()
        own.chmod(0o777)
        os.chown(own, STRANGER, STRANGER)
        return f"{own} belongs to user {STRANGER}"
    if how == "a stranger's above":
        base.parent.chmod(0o1777)
        os.chown(base, STRANGER, STRANGER)
        return f"{base} belongs to user {STRANGER}"
    target = base.parent / "target"
    target.mkdir(mode=0o700)
    own.symlink_to(target)
    os.chown(own, STRANGER, STRANGER, follow_symlinks=False)
    return f"{own} is a link"


@pytest.mark.parametrize(
    "how",
    ["everybody's", "below everybody's", "made by a stranger", "a stranger's above", "a link"],
)
def test_a_folder_that_others_can_exchange_is_refused(prepared: Prepared, how: str) -> None:
    words = expose(how, prepared.base, prepared.own)
    done = prepared.run()
    message = f"other users of {os.uname().nodename} could exchange the job's files: {words}"
    assert (done.code, done.state.message) == (1, message)
    assert list(done.directory.glob("logs/*.log")) == []
    assert list(prepared.base.parent.rglob("work")) == []


# --- the cache of images --------------------------------------------------------------------------


@pytest.fixture(params=[pytest.param("apptainer", marks=pytest.mark.apptainer)])
def apptainer(request: pytest.FixtureRequest, folder: Path) -> Site:
    return Site(request.param, folder)


def run_from_cache(site: Site, prepare: Any) -> Finished:
    """Run a pod whose image is in the cache; PREPARE is called with the cache and the image."""
    site.run(pod({"command": ["true"]}))  # which fills it
    cache = site.folder / "images"
    image = cache / find(f"docker://{BUSYBOX}", "apptainer", site.config.images, "", "").file
    prepare(cache, image)
    container = {"command": ["echo", "ran"], "imagePullPolicy": "Never"}
    return site.run(pod(container), with_images(site.config, cache=str(cache)))


@pytest.mark.parametrize("owner", [0, ALICE])
def test_a_cache_of_root_or_of_the_sites_user_is_used(apptainer: Site, owner: int) -> None:
    def own(cache: Path, image: Path) -> None:
        os.chown(cache, owner, owner)
        os.chown(image, owner, owner)

    done = run_from_cache(apptainer, own)
    assert done.log("c0") == "ran\n"


@pytest.mark.parametrize("how", ["everybody's", "sticky", "above", "a stranger's"])
def test_a_cache_that_others_can_write_to_is_refused(apptainer: Site, how: str) -> None:
    expected = {
        "everybody's": "everybody can write to {}/images",
        "sticky": "everybody can write to {}/images",
        "above": "everybody can write to {}",
        "a stranger's": "{}/images belongs to user 65534",
    }

    def expose(cache: Path, image: Path) -> None:
        if how == "a stranger's":
            os.chown(cache, STRANGER, STRANGER)
        elif how == "above":
            cache.parent.chmod(0o777)
        else:
            cache.chmod(0o1777 if how == "sticky" else 0o777)

    done = run_from_cache(apptainer, expose)
    words = expected[how].format(apptainer.folder)
    assert done.state.containers["c0"].end is not None
    assert done.state.containers["c0"].end.message == (
        f"ErrImagePull: other users of {done.state.node} could exchange images in the cache "
        f"{apptainer.folder}/images: {words}"
    )


@pytest.mark.parametrize("how", ["file", "link"])
def test_what_others_have_put_into_a_cache_is_not_an_image(apptainer: Site, how: str) -> None:
    def exchange(cache: Path, image: Path) -> None:
        cache.chmod(0o770)
        if how == "link":
            image.rename(cache / "other")
            image.symlink_to(cache / "other")
        os.chown(image, STRANGER, STRANGER, follow_symlinks=False)

    done = run_from_cache(apptainer, exchange)
    assert done.state.containers["c0"].end is not None
    assert "ErrImageNeverPull" in done.state.containers["c0"].end.message
