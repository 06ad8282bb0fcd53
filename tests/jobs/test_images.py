"""Where images come from: files and folders of the site, its cache, and a real registry."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from templates.resolve.images import find
from templates.site.build_config import BuildConfig
from tests.support.registry import ADDRESS, PASSWORD, PRIVATE, Registry, login
from tests.support.script_runner import (
    ALICE,
    BUSYBOX,
    ENTRY,
    SITE_ROOT,
    Finished,
    Site,
    pod,
    put_program,
    site_root,
    with_images,
    with_script,
)

SAY = {"command": ["echo", "hello"]}
TREE = "/srv/images/tree"  # in the site root: an unpacked busybox


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    found = Registry()
    found.start()
    yield found
    found.stop()


@pytest.fixture(params=[pytest.param("apptainer", marks=pytest.mark.apptainer)])
def apptainer(request: pytest.FixtureRequest, folder: Path) -> Site:
    """The cache of pulled images is ours under Apptainer; Podman has its own."""
    return Site(request.param, folder)


def is_podman(site: Site) -> bool:
    return site.runtime == "podman"


def said(done: Finished, container: str = "c0") -> str:
    assert done.ends() == {container: 0}, (done.output, done.state, done.log(container))
    return done.log(container)


def why(done: Finished, container: str = "c0") -> str:
    """Why an image could not be had."""
    end = done.state.containers[container].end
    assert end is not None
    assert end.exit_code == 125
    assert end.reason == "ErrImagePull"
    return end.message


def states(done: Finished) -> list[str]:
    """The states of c0 in order, with the reasons."""
    own = [record.values for record in done.records if record.stream == "c.c0"]
    return [f"{v['state']} {v.get('reason', '')}".strip() for v in own]


def cached(site: Site, image: str, config: BuildConfig | None = None) -> Path:
    images = (config or site.config).images
    return site.folder / "images" / find(image, site.runtime, images, "", "").file


def give(path: Path) -> None:
    for entry in (path, *path.rglob("*")):
        os.chown(entry, ALICE, ALICE)


# --- places of the site --------------------------------------------------------------------------


def test_an_image_can_be_a_folder_of_the_site(container_site: Site) -> None:
    done = container_site.run(
        pod({"image": TREE, "command": ["sh", "-c", "echo hello >/new; cat /new"]})
    )
    assert said(done) == "hello\n"
    assert not (site_root() / "srv" / "images" / "tree" / "new").exists()  # nobody writes into it


def test_a_folder_of_the_site_may_be_one_that_nobody_can_write_to(container_site: Site) -> None:
    copy = container_site.folder / "read:only"
    shutil.copytree(site_root() / "srv" / "images" / "tree", copy, symlinks=True)
    # What podman would make in it, and cannot: see docs/limits.md.
    (copy / "run").mkdir(exist_ok=True)
    for name in ("etc/hosts", "etc/hostname", "etc/resolv.conf", "run/.containerenv"):
        (copy / name).touch()
    if not (copy / "etc" / "mtab").is_symlink():
        (copy / "etc" / "mtab").symlink_to("/proc/mounts")
    for path in (copy, *copy.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o555)
    done = container_site.run(pod({"image": str(copy), **SAY}))
    assert said(done) == "hello\n"


def test_a_folder_has_no_command_of_its_own(container_site: Site) -> None:
    done = container_site.run(pod({"image": TREE}))
    assert why(done).startswith(f"the image directory {TREE} has no command of its own")


def test_an_image_can_be_a_file_of_the_site_if_the_runtime_can_start_it(
    container_site: Site,
) -> None:
    file = "/srv/images/entry_1.sif"
    done = container_site.run(pod({"image": file}))
    if is_podman(container_site):
        assert why(done) == (
            f"podman cannot run the image file {file}; "
            "it takes registries, archives and directories"
        )
    else:
        assert said(done) == "entry-point image-command\n"


@pytest.mark.parametrize(
    ("scheme", "form"),
    [("docker-archive", "docker-archive"), ("oci-archive", "oci-archive"), ("oci", "oci-dir")],
)
def test_an_image_can_be_an_archive_of_the_site(
    container_site: Site, scheme: str, form: str
) -> None:
    kept = container_site.folder / "kept"
    kept.mkdir()
    give(kept)
    saving = ["podman", "save", "--quiet", "--format", form, "--output", f"{kept}/image", ENTRY]
    subprocess.run(
        [str(SITE_ROOT), "run", *saving],
        env={**os.environ, "SITE_BIND": str(container_site.folder)},
        check=True,
        capture_output=True,
    )
    container = {"image": f"{scheme}:{kept}/image", "args": ["hello"]}
    done = container_site.run(pod(container, {**container, "args": ["you"]}))
    assert done.log("c0") == "entry-point hello\n"
    assert done.log("c1") == "entry-point you\n"


def test_an_image_that_the_site_does_not_have_is_said_to_be_missing(container_site: Site) -> None:
    done = container_site.run(pod({"image": "/srv/images/none.sif", **SAY}))
    assert why(done) == f"image /srv/images/none.sif does not exist on {done.state.node}"
    assert states(done) == ["terminated ErrImagePull"]


def test_a_root_is_put_before_relative_names_and_the_pods_own_wins(container_site: Site) -> None:
    config = with_images(container_site.config, root="/srv/images")
    assert said(container_site.run(pod({"image": "tree", **SAY}), config)) == "hello\n"
    manifest = pod({"image": "tree", **SAY})
    manifest["metadata"]["annotations"] = {"slurm-job.vk.io/image-root": "/srv/images/"}
    config = with_images(container_site.config, root="/no/such/place")
    assert said(container_site.run(manifest, config)) == "hello\n"


def test_a_prefix_is_put_before_names_without_a_scheme(container_site: Site) -> None:
    config = with_images(container_site.config, prefix="/srv/images/")
    assert said(container_site.run(pod({"image": "tree", **SAY}), config)) == "hello\n"
    config = with_images(container_site.config, prefix="/no/such/place/")
    assert said(container_site.run(pod({"image": TREE, **SAY}), config)) == "hello\n"
    scheme = pod({"image": f"docker://{BUSYBOX}", **SAY})
    assert said(container_site.run(scheme, config)) == "hello\n"


@pytest.mark.parametrize("key", ["directory", "unpacked"])
def test_what_the_site_has_prepared_is_taken_first(container_site: Site, key: str) -> None:
    names = {
        "directory": "images-of-the-site/own_image_1",
        "unpacked": "images-of-the-site/registry.hub.docker.com/own/image:1",
    }
    place = container_site.folder / names[key]
    place.parent.mkdir(parents=True)
    shutil.copytree(site_root() / "srv" / "images" / "tree", place, symlinks=True)
    (place / "prepared").write_text("by the site\n")
    give(container_site.folder)
    config = with_images(
        container_site.config, **{key: str(container_site.folder / "images-of-the-site")}
    )
    image = "own/image:1" if key == "unpacked" else "own:image:1"
    if key == "directory":
        place.rename(place.parent / "own_1")
        image = "own:1"
    done = container_site.run(pod({"image": image, "command": ["cat", "/prepared"]}), config)
    assert said(done) == "by the site\n"
    # What is not prepared comes from where it always comes from.
    assert said(container_site.run(pod({**SAY}), config)) == "hello\n"


def test_a_prepared_file_is_taken_too(apptainer: Site) -> None:
    prepared = apptainer.folder / "prepared"
    prepared.mkdir()
    shutil.copy(site_root() / "srv" / "images" / "entry_1.sif", prepared / "own_1")
    config = with_images(apptainer.config, directory=str(prepared))
    assert said(apptainer.run(pod({"image": "own:1"}), config)) == "entry-point image-command\n"


# --- pull policy -------------------------------------------------------------------------------


def test_with_policy_never_only_an_image_that_is_there_is_started(container_site: Site) -> None:
    done = container_site.run(pod({"imagePullPolicy": "Never", **SAY}))
    assert said(done) == "hello\n"
    image = "tests/never-seen:1"
    done = container_site.run(pod({"image": image, "imagePullPolicy": "Never", **SAY}))
    scheme = "" if is_podman(container_site) else "docker://"
    assert why(done) == (
        f"ErrImageNeverPull: image {scheme}docker.io/{image} "
        "is not present with pull policy of Never"
    )
    assert states(done) == ["terminated ErrImagePull"]


@pytest.mark.parametrize("image", [BUSYBOX, f"docker.io/library/{BUSYBOX}", f"docker://{BUSYBOX}"])
def test_all_names_of_an_image_are_one_image(container_site: Site, image: str) -> None:
    done = container_site.run(pod({"image": image, "imagePullPolicy": "Never", **SAY}))
    assert said(done) == "hello\n"


# --- a real registry ---------------------------------------------------------------------------


def test_short_names_tags_and_digests_are_pulled(container_site: Site, registry: Registry) -> None:
    short = registry.new("entry")
    named = registry.new("entry", "team/project")
    images = [
        f"{short.removeprefix('library/')}:1",
        f"docker://{named}:1",
        f"{ADDRESS}/{named}:1",
        f"{ADDRESS}/{named}@{registry.digest(named)}",
        f"docker.io/{named}:1@{registry.digest(named)}",
    ]
    for image in images:
        done = container_site.run(pod({"image": image}))
        assert said(done) == "entry-point image-command\n", image
        assert states(done)[0] == "waiting ContainerCreating"


def test_a_tag_that_is_not_there_ends_in_the_registrys_own_words(
    container_site: Site, registry: Registry
) -> None:
    image = f"{ADDRESS}/{registry.new()}:none"
    config = with_images(container_site.config, pull_attempts=3, pull_backoff_s=1)
    done = container_site.run(pod({"image": image, **SAY}), config)
    words = why(done)
    assert words.startswith("ErrImagePull: ")
    assert image in words
    assert "manifest unknown" in words
    assert "\n" not in words
    once = ["waiting ContainerCreating", "waiting ErrImagePull"]
    backing_off = [*once, "waiting ImagePullBackOff"]
    assert states(done) == [*backing_off, *backing_off, once[0], "terminated ErrImagePull"]
    messages = {v["reason"]: bytes.fromhex(v.get("message", "")).decode() for v in waiting(done)}
    assert messages["ErrImagePull"] == words
    assert messages["ImagePullBackOff"].startswith("Back-off 2s pulling image ")
    assert done.log("c0") == words + "\n"


def waiting(done: Finished) -> list[Any]:
    return [r.values for r in done.records if r.values.get("state") == "waiting"]


def test_an_image_that_comes_late_is_started_all_the_same(
    container_site: Site, registry: Registry
) -> None:
    name = registry.new()
    config = with_images(container_site.config, pull_attempts=50, pull_backoff_s=1)
    running = container_site.start(pod({"image": f"{ADDRESS}/{name}-late:1", **SAY}), config)
    running.until(
        lambda state: (
            "c0" in state.containers and state.containers["c0"].reason == "ImagePullBackOff"
        )
    )
    registry.push("busybox", f"{name}-late")
    assert said(running.wait()) == "hello\n"


def test_a_pod_that_is_ended_while_it_backs_off_ends_at_once(
    container_site: Site, registry: Registry
) -> None:
    config = with_images(container_site.config, pull_attempts=50, pull_backoff_s=300)
    running = container_site.start(
        pod({"image": f"{ADDRESS}/{registry.new()}:none", **SAY}), config
    )
    running.until(
        lambda state: (
            "c0" in state.containers and state.containers["c0"].reason == "ImagePullBackOff"
        )
    )
    running.terminate()
    done = running.wait()
    assert done.code not in (0, -15)
    assert done.state.exit_code == done.code
    assert done.state.message.startswith("the batch system ended the job on ")
    end = done.state.containers["c0"].end
    assert end is not None
    assert end.message.startswith("not started: the batch system ended the job on ")


def test_a_registry_that_does_not_answer_is_said_to_refuse(container_site: Site) -> None:
    done = container_site.run(pod({"image": "127.0.0.6:9/x:1", **SAY}))
    assert "connection refused" in why(done)


def test_pull_secrets_open_a_private_registry(container_site: Site, registry: Registry) -> None:
    image = {"image": f"{PRIVATE}/{registry.new()}:1"}
    secrets = {"imagePullSecrets": [{"name": "other"}, {"name": "pull"}]}
    wrong = login("other")
    wrong["stringData"] = {".dockerconfigjson": '{"auths": {"quay.io": {"auth": "eDp5"}}}'}
    running = container_site.start([pod({**image, **SAY}, **secrets), wrong, login("pull")])
    assert said(running.wait()) == "hello\n"


@pytest.mark.podman
def test_under_podman_a_login_of_the_sites_user_opens_it_too(
    folder: Path, registry: Registry
) -> None:
    site = Site("podman", folder)
    entering = f"podman login --username alice --password-stdin {PRIVATE}"
    header = f"printf %s '{PASSWORD}' | {entering} || exit 9"
    config = with_script(site.config, header=header)
    image = {"image": f"{PRIVATE}/{registry.new()}:1"}
    assert said(site.run(pod({**image, **SAY}), config)) == "hello\n"


@pytest.mark.parametrize("password", [None, "wrong"])
def test_without_the_right_login_a_private_registry_stays_closed(
    container_site: Site, registry: Registry, password: str | None
) -> None:
    image = {"image": f"{PRIVATE}/{registry.new()}:1"}
    if password is None:
        done = container_site.run(pod({**image, **SAY}))
    else:
        pull = {"imagePullSecrets": [{"name": "pull"}]}
        done = container_site.run([pod({**image, **SAY}, **pull), login("pull", password=password)])
    assert "authentication required" in why(done) or "unauthorized" in why(done).lower()


def test_the_password_of_a_registry_is_in_no_argument(
    container_site: Site, registry: Registry
) -> None:
    manifests = [
        pod(
            {"image": f"{PRIVATE}/{registry.new()}:1", **SAY},
            imagePullSecrets=[{"name": "pull"}],
        ),
        login("pull"),
    ]
    secret_words = (b"geheim $x", b"YWxpY2U6Z2VoZWltICR4")
    running = container_site.start(manifests)
    seen = 0
    while running.process.poll() is None:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes()
            except OSError:
                continue
            seen += b"pull" in line
            assert not any(word in line for word in secret_words), line
    assert said(running.wait()) == "hello\n"
    assert seen


def test_with_policy_always_a_changed_image_is_pulled_again(
    container_site: Site, registry: Registry
) -> None:
    name = registry.new("busybox")
    asks = pod({"image": f"{ADDRESS}/{name}:1", "imagePullPolicy": "Always"})
    config = with_images(container_site.config, always_recheck_s=0)
    assert said(container_site.run(asks, config)) == ""
    registry.push("entry", name)
    assert said(container_site.run(asks, config)) == "entry-point image-command\n"


def test_an_image_that_was_checked_lately_is_not_asked_for_again(
    apptainer: Site, registry: Registry
) -> None:
    name = registry.new("busybox")
    asks = pod({"image": f"{ADDRESS}/{name}:1", "imagePullPolicy": "Always"})
    config = with_images(apptainer.config, always_recheck_s=3600)
    assert said(apptainer.run(asks, config)) == ""
    before = registry.requests(name)
    registry.push("entry", name)
    assert said(apptainer.run(asks, config)) == ""
    assert registry.requests(name) == before


# --- the shared cache --------------------------------------------------------------------------


def test_many_jobs_at_once_pull_an_image_once(apptainer: Site, registry: Registry) -> None:
    warm, alone, together = registry.new(), registry.new(), registry.new()
    said(apptainer.run(pod({"image": f"{ADDRESS}/{warm}:1", **SAY})))  # layers are shared
    said(apptainer.run(pod({"image": f"{ADDRESS}/{alone}:1", **SAY})))
    running = [
        apptainer.start(pod({"image": f"{ADDRESS}/{together}:1", **SAY}, name=f"job-{number}"))
        for number in range(6)
    ]
    assert [said(job.wait()) for job in running] == ["hello\n"] * 6
    assert len(registry.requests(warm)) > len(registry.requests(alone)) > 0
    assert registry.requests(together) == registry.requests(alone)
    left = [path.name for path in (apptainer.folder / "images").iterdir()]
    assert [name for name in left if ".lock" in name or ".part" in name] == []


def test_a_job_waits_for_another_that_pulls(apptainer: Site) -> None:
    image = "tests/pulled-by-another:1"
    target = cached(apptainer, image)
    target.parent.mkdir()
    lock = Path(f"{target}.lock")
    lock.mkdir()
    give(target.parent)
    config = with_images(apptainer.config, lock_stale_s=2)
    running = apptainer.start(pod({"image": image, **SAY}), config)
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(0.2):
            os.utime(lock)

    renewal = threading.Thread(target=renew)
    renewal.start()
    try:
        running.until(lambda state: "c0" in state.containers)
        end = time.monotonic() + 5  # more than twice what makes a lock stale
        while time.monotonic() < end:
            assert states_now(running.state) == "waiting"
            time.sleep(0.1)
        shutil.copy(site_root() / "srv" / "images" / "busybox_1.36.sif", f"{target}.new")
        Path(f"{target}.new").rename(target)
    finally:
        stop.set()
        renewal.join()
    assert said(running.wait()) == "hello\n"


def states_now(state: Any) -> str:
    return str(state.containers["c0"].state)


def test_the_lock_of_a_dead_job_is_taken_over(apptainer: Site, registry: Registry) -> None:
    image = f"{ADDRESS}/{registry.new()}:1"
    config = with_images(apptainer.config, lock_stale_s=2)
    target = cached(apptainer, image, config)
    target.parent.mkdir()
    Path(f"{target}.lock").mkdir()
    give(target.parent)
    jobs = [
        apptainer.start(pod({"image": image, **SAY}, name=f"job-{number}"), config)
        for number in range(3)
    ]
    assert [said(job.wait()) for job in jobs] == ["hello\n"] * 3
    assert not Path(f"{target}.lock").exists()


def test_a_lock_that_is_given_back_while_one_looks_is_no_trouble(
    apptainer: Site, registry: Registry
) -> None:
    """It was there when it was to be made, and is gone when it is looked for."""
    tries = apptainer.folder / "bin" / "tries"
    path = put_program(
        apptainer.folder,
        "mkdir",
        f"""#!/bin/sh
        case $1 in *.lock) echo . >>{tries}; [ "$(wc -l <{tries})" -gt 2 ] || exit 1 ;; esac
        exec /bin/mkdir "$@"
        """,
    )
    give(Path(path))
    config = with_script(apptainer.config, header=f"export PATH={path}:$PATH")
    image = f"{ADDRESS}/{registry.new()}:1"
    assert said(apptainer.run(pod({"image": image, **SAY}), config)) == "hello\n"
    assert tries.read_text() == ".\n" * 3


def test_a_torn_file_of_a_dead_job_is_never_used(apptainer: Site, registry: Registry) -> None:
    image = f"{ADDRESS}/{registry.new()}:1"
    target = cached(apptainer, image)
    target.parent.mkdir()
    torn = Path(f"{target}.some-job.part")
    torn.write_bytes(b"#!/usr/bin/env run-singularity\n")
    give(target.parent)
    assert said(apptainer.run(pod({"image": image, **SAY}))) == "hello\n"
    assert target.stat().st_size > torn.stat().st_size


def test_a_failing_pull_leaves_nothing_in_the_cache(apptainer: Site, registry: Registry) -> None:
    image = f"{ADDRESS}/{registry.new()}:none"
    why(apptainer.run(pod({"image": image, **SAY})))
    base = cached(apptainer, image).name
    left = [path.name for path in (apptainer.folder / "images").iterdir()]
    assert [name for name in left if name.startswith(base)] == []


def test_a_cache_that_cannot_be_written_to_is_said_so(apptainer: Site) -> None:
    said(apptainer.run(pod(SAY)))  # fills it with what tests need
    cache = apptainer.folder / "images"
    cache.chmod(0o555)
    assert said(apptainer.run(pod(SAY))) == "hello\n"  # what is there can be used
    done = apptainer.run(pod({"image": "tests/never-seen:1", **SAY}))
    assert (
        why(done) == f"ErrImagePull: cannot write to the image cache {cache} on {done.state.node}"
    )
