"""From the image of a pod to what a runtime starts."""

from __future__ import annotations

import pytest

from templates.common.errors import PodRejected
from templates.resolve.images import Image, find, full_name
from templates.site.build_config import Images

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.12", "docker.io/library/python:3.12"),
        ("team/tool", "docker.io/team/tool:latest"),
        ("team/deep/tool:1", "docker.io/team/deep/tool:1"),
        ("docker.io/python", "docker.io/library/python:latest"),
        ("index.docker.io/python:3", "docker.io/library/python:3"),
        ("registry-1.docker.io/team/tool:3", "docker.io/team/tool:3"),
        ("ghcr.io/a/b", "ghcr.io/a/b:latest"),
        ("localhost/a", "localhost/a:latest"),
        ("localhost:5000/a:b", "localhost:5000/a:b"),
        ("host:5000/a", "host:5000/a:latest"),
        ("127.0.0.1:5000/a/b@" + DIGEST, f"127.0.0.1:5000/a/b@{DIGEST}"),
        (f"python@{DIGEST}", f"docker.io/library/python@{DIGEST}"),
        (f"python:3.12@{DIGEST}", f"docker.io/library/python@{DIGEST}"),
        (f"host:5000/a/b:1@{DIGEST}", f"host:5000/a/b@{DIGEST}"),
        (f"host:5000/a@{DIGEST}", f"host:5000/a@{DIGEST}"),
    ],
)
def test_a_name_is_completed_as_docker_completes_it(name: str, full: str) -> None:
    assert full_name(name) == full


NO_SETTINGS = Images()


def found(
    image: str, runtime: str = "apptainer", root: str = "", config: Images = NO_SETTINGS
) -> Image:
    return find(image, runtime, config, root, "pod.image")


@pytest.mark.parametrize("image", ["python", "docker.io/library/python:latest", "docker://python"])
def test_all_names_of_an_image_share_one_file_of_the_cache(image: str) -> None:
    assert found(image) == found("library/python")
    assert found(image).reference == "docker://docker.io/library/python:latest"
    assert found(image).registry == "docker.io"
    assert found(image, "podman").reference == "docker.io/library/python:latest"


def test_files_of_the_cache_can_be_told_apart_and_read_by_people() -> None:
    names = [
        "a/b:1",
        "b:1",
        "a-b:1",
        "a/b:1-",
        "b_1",
        "ghcr.io/a/b:1",
        f"b@{DIGEST}",
        "a/b:" + "x" * 99,
    ]
    files = [found(name).file for name in names]
    assert len(set(files)) == len(files)
    assert files[0].startswith("b_1-")
    for file in files:
        assert file.endswith(".sif")
        assert len(file) < 100
        assert set(file) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def test_an_absolute_path_is_a_place_and_never_pulled() -> None:
    assert found("/images/a:b.sif") == Image("/images/a:b.sif", places=("/images/a:b.sif",))


@pytest.mark.parametrize(
    ("image", "root", "config", "reference"),
    [
        ("a:1", "", Images(prefix="ghcr.io/team/"), "docker://ghcr.io/team/a:1"),
        ("a:1", "", Images(prefix="docker://ghcr.io/"), "docker://ghcr.io/a:1"),
        ("a", "", Images(root="/images"), "/images/a"),
        ("a", "", Images(root="/images/", prefix="x/"), "/images/a"),
        ("a", "/mine", Images(root="/images", prefix="x/"), "/mine/a"),
        ("a", "oras://ghcr.io/", Images(prefix="x/"), "oras://ghcr.io/a"),
        ("/a", "/mine", Images(root="/images", prefix="x/"), "/a"),
        ("docker://a", "/mine", Images(prefix="x/"), "docker://docker.io/library/a:latest"),
        ("oras://a/b:1", "/mine", Images(prefix="x/"), "oras://a/b:1"),
    ],
)
def test_a_prefix_applies_to_bare_names_and_the_pods_own_wins(
    image: str, root: str, config: Images, reference: str
) -> None:
    assert found(image, root=root, config=config).reference == reference


def test_prepared_images_are_looked_for_first() -> None:
    config = Images(directory="/prebuilt", unpacked="/cvmfs/unpacked")
    image = found("team/tool:1", config=config)
    assert image.places == (
        "/prebuilt/team/tool_1",
        "/cvmfs/unpacked/registry.hub.docker.com/team/tool:1",
        "/cvmfs/unpacked/docker.io/team/tool:1",
    )
    assert image.reference == "docker://docker.io/team/tool:1"
    assert found("ghcr.io/a/b:1", config=config).places == (
        "/prebuilt/ghcr.io/a/b_1",
        "/cvmfs/unpacked/ghcr.io/a/b:1",
    )


@pytest.mark.parametrize(
    ("image", "places"),
    [
        ("busybox:1.36", ["busybox_1.36"]),
        ("docker.io/busybox:1.36", ["docker.io/busybox_1.36", "busybox_1.36"]),
        ("docker://library/busybox:1.36", ["library/busybox_1.36", "busybox_1.36"]),
        ("busybox", ["busybox", "busybox_latest"]),
        ("docker.io/team/tool:1", ["docker.io/team/tool_1", "team/tool_1"]),
        ("ghcr.io/library/b", ["ghcr.io/library/b", "ghcr.io/library/b_latest"]),
    ],
)
def test_a_prebuilt_image_may_be_named_as_the_pod_does_or_in_short(
    image: str, places: list[str]
) -> None:
    there = found(image, config=Images(directory="/p")).places
    assert there == tuple(f"/p/{place}" for place in places)


@pytest.mark.parametrize(
    "image",
    [
        "oras://ghcr.io/a/b:1",
        "library://a/b:1",
        "shub://a/b",
        "https://example.org/a.sif",
        "docker-archive:/a/b.tar",
        "oci-archive:/a/b.tar",
        "oci:/a/b",
    ],
)
def test_other_schemes_are_handed_on(image: str) -> None:
    assert found(image).reference == image
    assert found(image).file.endswith(".sif")
    assert found(image, "singularity") == found(image)


@pytest.mark.parametrize(
    ("image", "runtime"),
    [
        ("oras://ghcr.io/a/b:1", "podman"),
        ("https://example.org/a.sif", "podman"),
        ("instance://a", "apptainer"),
        ("ftp://a", "apptainer"),
        ("dockerd://a", "apptainer"),
    ],
)
def test_a_scheme_that_a_runtime_does_not_know_is_refused(image: str, runtime: str) -> None:
    with pytest.raises(PodRejected) as caught:
        found(image, runtime)
    assert str(caught.value) == f"pod.image: {runtime} cannot start images of the form {image}"
