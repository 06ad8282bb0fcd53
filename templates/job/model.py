"""A job: plain values that every program can read, as they are sent to a site.

``translation/build.py`` makes one from a pod; sites need not load it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from templates.common.message_fields import Positive, Token

MANIFESTS = "secret/manifests.json"  # the file of a job that is objects for another cluster

_FUNCTIONS = "\n# ---- Small tools ----\n"


class File(NamedTuple):
    """One file of a job, in its directory."""

    path: str  # relative to the job's directory
    content: bytes
    mode: int
    secret: bool


class Job(NamedTuple):
    """All that a submitter needs to run a pod, and nothing of Kubernetes."""

    name: str
    uid: str
    namespace: Token
    pod: str
    """The pod's name."""
    runtime: str
    script: str
    """job.sh, the whole life of the pod; the scheduler gets only a stub that starts it."""
    files: tuple[File, ...]
    """Files beside the script, relative to the job's directory."""
    cpu_milli: int
    memory_bytes: int
    gpus: Mapping[str, int]
    wall_time_s: Optional[Positive]
    other_resources: Mapping[str, str]
    annotations: Mapping[str, str]
    """The pod's annotations for the backend, by the name after the slash."""
    containers: tuple[tuple[str, str, str], ...]
    """Name, kind and image of each, in the order of the pod, as a status lists them."""
    grace_period_s: int
    """Between TERM and KILL when the pod is deleted."""
    host_paths: tuple[str, ...]
    """The site's own files that hostPath volumes and annotations mount, as the pod names them."""
    privileged: bool
    """A container requests rights that a site has to grant."""
    origin: str = ""
    """The cluster that the pod belongs to; empty if unknown."""
    images: tuple[str, ...] = ()
    """What the runtime gets as each container's image; older plugins do not say."""
    used_annotations: tuple[str, ...] = ()
    """Names after the slash of the annotations that the script was made with."""
    options: tuple[str, ...] = ()
    """Words that the pod adds to the runtime's options."""


def split_script(script: str) -> tuple[str, str]:
    """Split a job.sh into the pod's own half and the functions, which many scripts share.

    A message has equal functions once. To compress whole scripts instead takes six times the CPU at
    both ends (140 us for a job, not 23), and of 100 jobs the message is a third larger.
    """
    at = script.find(_FUNCTIONS)
    return (script[:at], script[at:]) if at > 0 else (script, "")
