"""The site's image for an image of a pod."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from templates.common.errors import PodRejected
from templates.site.build_config import KUBERNETES, Images

_SCHEMES = {
    "docker://": ("apptainer", "singularity", "podman"),
    "oras://": ("apptainer", "singularity"),
    "library://": ("apptainer", "singularity"),
    "shub://": ("apptainer", "singularity"),
    "https://": ("apptainer", "singularity"),
    "http://": ("apptainer", "singularity"),
    "docker-archive:": ("apptainer", "singularity", "podman"),
    "oci-archive:": ("apptainer", "singularity", "podman"),
    "oci:": ("apptainer", "singularity", "podman"),
}
_ARCHIVES = ("docker-archive:", "oci-archive:", "oci:")  # what follows is a path
_SCHEME = re.compile(r"[a-z][a-z0-9+-]*:(?://|/|\.)|(?:oci|oci-archive|docker-archive):")
_DOCKER_HUB = "docker.io"
_UNPACKED_DOCKER_HUB = "registry.hub.docker.com"  # what unpacked-image trees call it


class Image(NamedTuple):
    """An image to start: the first of the places that exists, else the reference is pulled."""

    reference: str  # for the runtime; of a place: the path
    registry: str = ""  # whose credentials a pull needs
    places: tuple[str, ...] = ()  # paths to look at first
    file: str = ""  # name in the cache of pulled images; empty: nothing can be pulled


@lru_cache(maxsize=1024)
def find(image: str, runtime: str, config: Images, root: str, field: str) -> Image:
    """Find the site's source of an image; ``root`` is the pod's image-root annotation."""
    reference = _with_prefix(image, config, root)
    if ".." in reference.split("/"):  # would leave the root, the directory or the unpacked tree
        raise PodRejected(field, f"an image must not be named by '..': {reference}")
    if reference.startswith("/"):
        return Image(reference, places=(reference,))
    scheme = _SCHEME.match(reference)
    if scheme is None:
        return _from_registry(image, reference, runtime, config)
    known = next((name for name in _SCHEMES if reference.startswith(name)), "")
    if runtime not in _SCHEMES.get(known, ()):
        raise PodRejected(field, f"{runtime} cannot start images of the form {reference}")
    if known == "docker://":
        return _from_registry(image, reference[len(known) :], runtime, config)
    return Image(reference, file=_cache_name(reference))


def in_full(image: str, runtime: str, config: Images, root: str, field: str) -> str:
    """Return the image that a runtime or cluster gets for a pod's; without any, the pod's word."""
    if runtime == "host":
        return image
    if runtime != KUBERNETES:
        return find(image, runtime, config, root, field).reference
    image = image.replace("docker://", "", 1)
    if image.startswith("/") or ":/" in image:
        raise PodRejected(field, f"a cluster cannot start images of the form {image}")
    return full_name(f"{config.prefix}{image}")


def _with_prefix(image: str, config: Images, root: str) -> str:
    """Add the prefix if there is neither a scheme nor a leading slash; the pod's own wins."""
    if image.startswith("/") or _SCHEME.match(image):
        return image
    prefix = root or config.root or config.prefix
    if prefix.startswith("/") and not prefix.endswith("/"):
        prefix += "/"
    return prefix + image


def full_name(name: str) -> str:
    """Return registry, path, and tag or digest: ``docker.io/library/python:latest``."""
    first, slash, rest = name.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        first, rest = _DOCKER_HUB, name
    if first in ("index.docker.io", "registry-1.docker.io"):
        first = _DOCKER_HUB
    if first == _DOCKER_HUB and "/" not in rest:
        rest = f"library/{rest}"
    if "@" not in rest and ":" not in rest.rpartition("/")[2]:
        rest += ":latest"
    tag, at, digest = rest.partition("@")
    if at:  # with a digest the tag says nothing, and not every runtime takes both
        path, colon, _ = tag.rpartition(":")
        rest = f"{path if colon and '/' not in tag[len(path) :] else tag}@{digest}"
    return f"{first}/{rest}"


def spellings(image: str) -> Iterator[str]:
    """Yield what ``in_full`` returned, and every shorter way to name just that image."""
    yield image
    name = image.replace("docker://", "", 1)
    if not name or name.startswith("/") or _SCHEME.match(name):
        return
    full = full_name(name)
    for start in ("", f"{_DOCKER_HUB}/", f"{_DOCKER_HUB}/library/"):
        for spelling in (
            full.removeprefix(start),
            full.removeprefix(start).removesuffix(":latest"),
        ):
            if full_name(spelling) == full:
                yield spelling


def path_of(image: str) -> str:
    """Return the path of an image that is a file or directory of the site; empty for others."""
    if image.startswith("/"):
        return image
    return next((image[len(scheme) :] for scheme in _ARCHIVES if image.startswith(scheme)), "")


def _short_name(full: str) -> str:
    """Return a full name as people write it: without Docker Hub's parts."""
    short = full.removeprefix(f"{_DOCKER_HUB}/")
    return short.removeprefix("library/") if short != full else full


def _from_registry(image: str, name: str, runtime: str, config: Images) -> Image:
    name = full_name(name)
    registry, _, rest = name.partition("/")
    places = []
    if config.directory:
        spellings = dict.fromkeys((image.replace("docker://", "", 1), _short_name(name)))
        places += [f"{config.directory}/{one.replace(':', '_')}" for one in spellings]
    if config.unpacked:
        names = (_UNPACKED_DOCKER_HUB, _DOCKER_HUB) if registry == _DOCKER_HUB else (registry,)
        places += [f"{config.unpacked}/{folder}/{rest}" for folder in names]
    reference = name if runtime == "podman" else f"docker://{name}"
    return Image(reference, registry, tuple(places), _cache_name(reference))


def _cache_name(reference: str) -> str:
    """Return a file name that people can read, and different for every reference."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", reference.rpartition("/")[2])[:60]
    return f"{readable}-{hashlib.sha256(reference.encode()).hexdigest()[:16]}.sif"
