"""The annotations of a pod for its batch job, and what each of them means.

Users know them from interLink's plugins for Slurm and HTCondor. Those about containers are read
here; all others of these families are handed to the backend under their own names.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import NamedTuple, Optional

from templates.common import constants
from templates.common.errors import PodRejected
from templates.pod.budget import LONGEST_NAME
from templates.site.build_config import Rules

TUNNEL_COMMANDS = "interlink.eu/wstunnel-client-commands"  # bash that starts interLink's tunnel
_TUNNEL_NAME = TUNNEL_COMMANDS.partition("/")[2]
POD_IP = "interlink.eu/pod-ip"  # the pod's address in interLink's VPN or mesh

# In rising priority: of two annotations of the same name, the one of the later family counts.
_CONDOR_FAMILIES = (
    constants.KNOC_HTCONDOR_PREFIX,
    constants.HTCONDOR_PREFIX,
    constants.CONDOR_PREFIX,
)
_FAMILIES = (
    *_CONDOR_FAMILIES,
    constants.KNOC_SLURM_PREFIX,
    constants.SLURM_PREFIX,
    constants.JOB_PREFIX,
)
_RANKS = {family: rank for rank, family in enumerate(_FAMILIES)}
_CONDOR_SHARED = ("image-root", "singularity-options")  # mean the same to HTCondor and to Slurm
# Read here, by the name after the slash; the rest goes to the backend.
_HANDLED_HERE = frozenset(
    (
        "pre-exec",
        "singularity-commands",
        "singularity-mounts",
        "singularity-options",
        "image-root",
        "mpi-flags",
    )
)

# What is split into words, or stands in the script once for each container, is short.
_LONGEST_WORDS = 16 * 1024
_MOST_MOUNTS = 100


class BindMount(NamedTuple):
    """A path of the node that every container of the pod sees."""

    source: str
    target: str
    read_only: bool = False


class JobAnnotations(NamedTuple):
    """The values of a pod's annotations for its job."""

    pre_exec: str = ""  # bash run on the node before the containers, as it was written
    singularity_commands: str = ""  # bash run on the node before each start of a container
    mounts: tuple[BindMount, ...] = ()
    options: tuple[str, ...] = ()  # further words for apptainer exec or podman run
    image_root: str = ""
    mpi_flags: Optional[tuple[str, ...]] = None  # words for mpirun; None: no MPI
    tunnel_commands: str = ""  # bash run in the background of the containers
    pod_ip: str = ""
    used: tuple[str, ...] = ()  # names after the slash of those that the values above are of
    backend: Mapping[str, str] = {}  # name after the slash, "condor/" before HTCondor's -> value


class _Annotation(NamedTuple):
    name: str  # in full, for messages
    value: str


def job_annotations(annotations: Mapping[str, str], rules: Rules) -> JobAnnotations:
    """Read the job's annotations; one that the site does not allow is refused, not ignored.

    The pod's address is set by interLink, not by the user, so the site's rules leave it alone.
    """
    found = _read_families(annotations, rules)
    tunnel = annotations.get(TUNNEL_COMMANDS, "")
    if TUNNEL_COMMANDS in annotations:
        _check_allowed(TUNNEL_COMMANDS, tunnel, rules)
    pod_ip = _check_text(POD_IP, annotations.get(POD_IP, ""))
    used: tuple[str, ...] = (_TUNNEL_NAME,) if TUNNEL_COMMANDS in annotations else ()
    _check_length(POD_IP, pod_ip, LONGEST_NAME)
    if _HANDLED_HERE.isdisjoint(found):
        backend = {name: one.value for name, one in found.items()}
        return JobAnnotations(tunnel_commands=tunnel, pod_ip=pod_ip, used=used, backend=backend)
    used += tuple([name for name in found if name in _HANDLED_HERE])
    none = _Annotation("", "")
    image_root = found.pop("image-root", none)
    _check_length(image_root.name, image_root.value, LONGEST_NAME)
    mpi_flags = found.pop("mpi-flags", None)
    return JobAnnotations(
        pre_exec=found.pop("pre-exec", none).value,
        singularity_commands=found.pop("singularity-commands", none).value,
        mounts=_read_mounts(found.pop("singularity-mounts", none)),
        options=_split_words(found.pop("singularity-options", none)),
        image_root=image_root.value.strip(),
        mpi_flags=None if mpi_flags is None else _split_words(mpi_flags),
        tunnel_commands=tunnel,
        pod_ip=pod_ip,
        used=used,
        backend={name: one.value for name, one in found.items()},
    )


def _read_families(annotations: Mapping[str, str], rules: Rules) -> dict[str, _Annotation]:
    """Check and collect the families' annotations by name; later families win over earlier."""
    ours = []
    for annotation in annotations:
        family, slash, name = annotation.partition("/")
        rank = _RANKS.get(family + slash)
        if rank is not None and annotation != constants.POOL_ANNOTATION:
            own = rank < len(_CONDOR_FAMILIES) and name not in _CONDOR_SHARED
            ours.append((rank, annotation, f"condor/{name}" if own else name))
    found: dict[str, _Annotation] = {}
    ours.sort()
    for _, annotation, name in ours:
        value = annotations[annotation]
        _check_allowed(annotation, value, rules)
        found[name] = _Annotation(annotation, value)
    return found


def _check_allowed(annotation: str, value: str, rules: Rules) -> None:
    refusal = rules.refusal(annotation.partition("/")[2])
    if refusal:
        raise _refusal(annotation, refusal)
    _check_text(annotation, value)


def _check_text(annotation: str, value: str) -> str:
    """Refuse a NUL character, which no bash text, word or path can hold."""
    if "\0" in value:
        raise _refusal(annotation, "holds a NUL character")
    return value


def _check_length(annotation: str, value: str, longest: int) -> None:
    if len(value) > longest:
        raise _refusal(annotation, f"has {len(value)} characters, more than {longest}")


def _refusal(annotation: str, reason: str) -> PodRejected:
    return PodRejected(f"pod.metadata.annotations[{annotation}]", reason)


def _split_words(annotation: _Annotation) -> tuple[str, ...]:
    """Split into words as a shell would; nothing in them is expanded."""
    if not annotation.value:
        return ()  # shlex is slow even for this, and most pods have none
    _check_length(annotation.name, annotation.value, _LONGEST_WORDS)
    try:
        return tuple(shlex.split(annotation.value))
    except ValueError as error:
        reason = str(error)
        raise _refusal(
            annotation.name, f"cannot be split into words: {reason[:1].lower()}{reason[1:]}"
        ) from None


def _read_mounts(annotation: _Annotation) -> tuple[BindMount, ...]:
    """Parse ``--bind /a:/b:ro --bind /c``, with or without the flag, also several behind one."""
    specs = []
    words = iter(_split_words(annotation))
    for word in words:
        spec = word
        if word in ("--bind", "-B"):
            spec = next(words, "")
            if not spec:
                raise _refusal(annotation.name, f"nothing follows {word}")
        elif word.startswith("--bind="):
            spec = word[len("--bind=") :]
        elif word.startswith("-"):
            raise _refusal(annotation.name, f"{word} is not understood: only --bind is")
        specs += [part for part in spec.split(",") if part]
    if len(specs) > _MOST_MOUNTS:
        raise _refusal(annotation.name, f"has {len(specs)} mounts, more than {_MOST_MOUNTS}")
    return tuple(_read_mount(annotation, spec) for spec in specs)


def _read_mount(annotation: _Annotation, spec: str) -> BindMount:
    source, *rest = spec.split(":")
    target = rest[0] if rest and rest[0] else source
    mode = rest[1] if len(rest) > 1 else "rw"
    if len(rest) > 2 or mode not in ("ro", "rw"):
        raise _refusal(annotation.name, f"{spec} is not /source[:/target[:ro]]")
    return BindMount(_clean_path(annotation, source), _clean_path(annotation, target), mode == "ro")


def _clean_path(annotation: _Annotation, path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or ".." in parts or not path.isprintable():
        raise _refusal(annotation.name, f"'{path}' is not an absolute path without ..")
    return "/" + "/".join(parts)
