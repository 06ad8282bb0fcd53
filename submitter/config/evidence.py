"""What a job's script and files show of a pod that the job does not declare.

A policy judges what a job declares. Here its script is held against that where this is cheap: in
the lines that the translation always writes in one way. It finds translations that have gone wrong,
and older ones; whoever writes other bash into a script can say there what he likes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from templates.common.quoting import quote
from templates.job.model import MANIFESTS, Job, split_script
from templates.site.build_config import KUBERNETES, Volumes

_FILES = {
    "secret/pre-exec.sh": "pre-exec",
    "secret/container-commands.sh": "singularity-commands",
    "secret/tunnel.sh": "wstunnel-client-commands",
}
_WORD = r"((?:[^\s'\"$]|'[^']*'|\"'\")+)"  # as quoted by templates/common/quoting.py
_IMAGE = re.compile(rf"^    name=\S+ kind=\S+ image={_WORD}$", re.MULTILINE)
_BIND = re.compile(rf"^    bind {_WORD} ", re.MULTILINE)
_RIGHTS = re.compile(r"^    capabilities=\(.*'--(?:privileged|cap-add=)", re.MULTILINE)
_LAUNCHER = re.compile(r"^    launcher=\(", re.MULTILINE)


def find_undeclared(job: Job, volumes: Volumes) -> str:
    """Return the first thing that the script has and the job does not declare; empty if none."""
    return next(_undeclared(job, volumes), "")


def _undeclared(job: Job, volumes: Volumes) -> Iterator[str]:
    for file in job.files:
        name = _FILES.get(file.path)
        if name and name not in job.used_annotations:
            yield f"commands of the annotation {name}"
    if job.runtime == KUBERNETES:
        yield from _undeclared_of_manifests(job)
        return
    own, _ = split_script(job.script)
    images = _IMAGE.findall(own)
    if images != [quote(image) for image in job.images]:
        yield f"the images {', '.join(images)}"
    if _LAUNCHER.search(own) and "mpi-flags" not in job.used_annotations:
        yield "flags of mpiexec"
    if _RIGHTS.search(own) and not job.privileged:
        yield "privileged containers or added capabilities"
    mounted = [shlex.split(word)[0] for word in set(_BIND.findall(own))]
    places = [*job.host_paths, *_places(job, volumes)]
    for path in mounted:
        if not is_below(path, places):
            yield f"a mount of {path}"


def _places(job: Job, volumes: Volumes) -> Iterator[str]:
    """Yield where the site has the volumes that pods do not name by their paths."""
    for claim in volumes.claims.values():
        yield claim.path.partition("$")[0].rpartition("/")[0] if "$" in claim.path else claim.path
    for export in volumes.nfs:
        yield export.path


def is_below(path: str, allowed: Iterable[str]) -> bool:
    """Return whether a path is one of these or below one, part by part; follow no links."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or ".." in parts or "\0" in path:
        return False
    for root in allowed:
        wanted = [part for part in root.split("/") if part not in ("", ".")]
        if parts[: len(wanted)] == wanted:
            return True
    return False


# --- a pool that is a cluster ---------------------------------------------------------------------


def _undeclared_of_manifests(job: Job) -> Iterator[str]:
    """Judge the far pod itself: it is what will be made."""
    try:
        (content,) = (file.content for file in job.files if file.path == MANIFESTS)
        found = _Found.of(json.loads(content)["pod"]["spec"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield "manifests that cannot be read"
        return
    if sorted(found.images) != sorted(job.images):
        yield f"the images {', '.join(found.images)}"
    for path in {*found.host_paths} - {*job.host_paths}:
        yield f"a mount of {path}"
    if found.has_rights and not job.privileged:
        yield "privileged containers, added capabilities or namespaces of the node"


class _Found(NamedTuple):
    """What stands in the spec of a pod."""

    images: list[str]
    host_paths: list[str]
    has_rights: bool

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> _Found:
        containers = [*spec.get("initContainers", ()), *spec["containers"]]
        security = [container.get("securityContext", {}) for container in containers]
        rights = [spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")]
        rights += [one.get("privileged") for one in security]
        rights += [one.get("capabilities", {}).get("add") for one in security]
        volumes = [volume["hostPath"] for volume in spec.get("volumes", ()) if "hostPath" in volume]
        return cls(
            [str(container["image"]) for container in containers],
            [str(volume["path"]) for volume in volumes],
            any(rights),
        )
