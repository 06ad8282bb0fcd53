"""The status of a job, as submitters publish it and the plugin keeps it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from templates.common.errors import WireError
from templates.common.message_fields import (
    INLINE,
    LARGEST_NUMBER,
    CutText,
    ExitCode,
    Namespace,
    PodName,
)
from templates.common.validation import list_at, text_at
from templates.job.records import ContainerState
from templates.pod.model import INIT, MAIN, SIDECAR

# The phases of a job, in the order in which it can pass through them.
ACCEPTED = "accepted"  # journaled at the site; the batch system may not know it yet
QUEUED = "queued"  # the batch system has it, and has not started it
STARTED = "started"  # its script runs, or the batch system says that it does
ENDED = "ended"  # over, for good: nothing of it will change any more
PHASES = (ACCEPTED, QUEUED, STARTED, ENDED)

KINDS = (INIT, SIDECAR, MAIN)

_SHORT_ENOUGH = 2048  # characters of names and images, of containers that are kept

# Reasons of waiting containers that are set here; the others come from job scripts.
NOT_READY = "NotReady"  # it runs
SUBMITTING = "Submitting"
IN_QUEUE = "Queued"
STARTING = "ContainerCreating"
INITIALIZING = "PodInitializing"


class Version(NamedTuple):
    """The progress of a status: of two for the same job, the greater one is the later."""

    run: int = 0  # when its script was started, in ms: a job that a site requeues starts anew
    phase: int = 0  # index in PHASES
    records: int = 0  # of the script


def version_at(holder: Mapping[str, Any], key: str, where: str) -> Version:
    """Return a version; a message has it as a list of its numbers."""
    version = list_at(holder, key, where)
    whole = list(map(type, version)) == [int, int, int]
    if not whole or not all(0 <= number <= LARGEST_NUMBER for number in version):
        raise WireError(f"{where}.{key}", "must be three whole numbers")
    return Version(*version)


def phase_at(holder: Mapping[str, Any], key: str, where: str) -> str:
    """Return one of ``PHASES``."""
    phase = text_at(holder, key, where)
    if phase not in PHASES:
        raise WireError(f"{where}.{key}", f"must be one of {', '.join(PHASES)}")
    return phase


class ContainerStatus(NamedTuple):
    """A container of the pod, and its state."""

    kind: str  # one of KINDS
    image: CutText
    state: Annotated[ContainerState, INLINE]


class JobStatus(NamedTuple):
    """Status of a job, as it is published: a field is added here, with a default, and nowhere else.

    ``protocol/message_schema.py`` reads and writes it as it is annotated.
    """

    job: str
    uid: str
    namespace: Namespace
    pod: PodName
    version: Annotated[Version, version_at] = Version()
    phase: Annotated[str, phase_at] = ACCEPTED
    native: CutText = ""  # the job's identity in the batch system, empty before it has one
    node: CutText = ""
    reason: CutText = ""  # of a job that has not started: one word
    message: CutText = ""  # of the batch system or the job
    started_ms: int = 0
    finished_ms: int = 0
    exit_code: ExitCode = 0
    deleting: bool = False  # its deletion was requested
    containers: tuple[ContainerStatus, ...] = ()
    origin: CutText = ""  # the cluster that its pod belongs to


class JobIdentity(NamedTuple):
    """The journaled fields of a job that its status needs."""

    job: str
    uid: str
    namespace: str
    pod: str
    containers: tuple[tuple[str, str, str], ...]  # name, kind, image
    origin: str = ""


def accepted_status(job: JobIdentity) -> JobStatus:
    """Return the status of a job that its site has just accepted.

    The plugin makes it as well as the site. Parts that such jobs have in common are kept once.
    """
    is_short = sum([len(name) + len(image) for name, _, image in job.containers]) <= _SHORT_ENOUGH
    submitting = _submitting_containers if is_short else _submitting_containers.__wrapped__
    return _ACCEPTED._replace(
        job=job.job,
        uid=job.uid,
        pod=job.pod,
        namespace=sys.intern(job.namespace),
        origin=sys.intern(job.origin),
        containers=submitting(job.containers),
    )


@lru_cache(maxsize=1024)
def _submitting_containers(
    containers: tuple[tuple[str, str, str], ...],
) -> tuple[ContainerStatus, ...]:
    """Return the containers of pending jobs; equal ones are kept once."""
    waiting = ContainerState("", reason=SUBMITTING)
    return tuple(
        [
            ContainerStatus(kind, sys.intern(image), waiting._replace(name=sys.intern(name)))
            for name, kind, image in containers
        ]
    )


_ACCEPTED = JobStatus(job="", uid="", namespace="", pod="")
