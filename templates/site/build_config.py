"""The BuildConfig: a site's settings for how scripts are built for it.

A submitter reads it from a file, publishes it, and the plugin renders with it. The dataclasses
below are the only list of the keys: the type of a field says which values it takes, the text under
it what it means. The loader and the sample (``file.py``) and docs/build-config.md follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Optional

from templates.common.names import matches_any
from templates.settings.types import (
    REQUIRED,
    Bash,
    Choice,
    Count,
    CountOrZero,
    Kind,
    Path,
    PathOrEmpty,
    Word,
)

HOST = "host"  # no runtime: the commands run as they are
RUNTIMES = ("apptainer", "singularity", "podman", HOST)
_BASH = "is bash that runs on the node, outside of any container"
ON_THE_NODE: Mapping[str, str] = {
    "pre-exec": _BASH,
    "singularity-commands": _BASH,
    "wstunnel-client-commands": _BASH,
    "mpi-flags": "is words for mpiexec, which can run any program on the node",
    "singularity-options": "is further options of the runtime, which can take it off its guard",
    "singularity-mounts": "mounts paths of the node",
}
"""Annotations by which a pod does as the site's user what its containers could not, and how."""

KUBERNETES = "kubernetes"  # no runtime of a script: the pod is made in the site's own cluster


@dataclass(frozen=True)
class Runtime:
    """Program that starts the containers."""

    name: Annotated[str, Choice((*RUNTIMES, KUBERNETES))] = "host"
    """What the containers run under; host: nothing, the commands run as they are."""
    executable: PathOrEmpty = ""
    """The program; empty: the name above is looked up on PATH at the node."""
    options: tuple[Annotated[str, Kind.ARGUMENT], ...] = ()
    """Further options for every container start (apptainer exec, podman run), one word each."""
    gpu: Annotated[str, Choice(("auto", "always", "never"))] = "auto"
    """GPUs go to the containers that ask for them (auto), to every one, or to none."""
    least_memory: Annotated[str, Kind.BYTES] = "128Mi"
    """What a job asks for if its pod asks for less: the script and the runtime need some, too."""


@dataclass(frozen=True)
class Apptainer:
    """Flags of Apptainer and Singularity; the other runtimes ignore them."""

    fakeroot: bool = False
    """--fakeroot: the container's user looks like root to itself."""
    userns: bool = False
    """--userns: run in a user namespace even where the installation is setuid."""
    uts: bool = False
    """--uts: a host name of its own."""
    containall: bool = False
    """--containall: PID and IPC namespaces of its own, nothing of the node's /dev and home."""
    no_init: bool = False
    """--no-init: no init process in a PID namespace of its own."""
    no_home: bool = True
    """--no-home: the home directory of the job's user stays outside."""
    no_privs: bool = False
    """--no-privs: drop all privileges, also root's."""
    unsquash: bool = False
    """--unsquash: unpack the image before the start, for nodes that cannot mount it."""
    writable_tmpfs: bool = True
    """A writable layer over the image, gone with the container, as Kubernetes has it."""
    tmp_dir: Annotated[str, Choice(("scratch", "bind", "none"))] = "scratch"
    """/tmp and /var/tmp: the container's own, empty at first; the node's; or what the image has."""


@dataclass(frozen=True)
class PodmanRuntime:
    """Options of podman; the other runtimes ignore them."""

    network: Word = "host"
    """host: the node's; else one for each pod, as podman names them: pasta, bridge, none, ..."""


@dataclass(frozen=True)
class Images:
    """Sources and caches of images."""

    prefix: Word = ""
    """Put before an image that has no scheme and is no absolute path; empty means docker://."""
    root: Annotated[str, Kind.PLACE] = ""
    """Where relative image names are looked up; a pod's image-root annotation wins."""
    directory: PathOrEmpty = ""
    """Prebuilt images: files or folders named like images, as in pods or in short, "_" for ":"."""
    unpacked: PathOrEmpty = ""
    """Root of an unpacked-image tree such as /cvmfs/unpacked.cern.ch, used for what it holds."""
    cache: PathOrEmpty = ""
    """Shared cache of pulled images; empty: .interlink/images in the job user's home directory."""
    pull_attempts: Count = 5
    """How often a failing pull is tried before the container fails with ErrImagePull."""
    pull_backoff_s: Count = 10
    """Pause after the first failing pull; doubled each time, up to 300 s (ImagePullBackOff)."""
    always_recheck_s: CountOrZero = 300
    """With pull policy Always, a cached image is taken as current for this long."""
    lock_stale_s: Count = 60
    """A puller that has not renewed its lock for so long is taken for dead."""


@dataclass(frozen=True)
class HostPath:
    """Path of the site that pods may mount by hostPath, with everything below it."""

    path: Path = field(default="", metadata=REQUIRED)
    """The file or directory at the site."""
    read_only: bool = False
    """Whether every mount of it is read-only, whatever the pod says."""


@dataclass(frozen=True)
class Claim:
    """Place of a PersistentVolumeClaim at the site."""

    path: Annotated[str, Kind.CLAIM_PATH] = field(default="", metadata=REQUIRED)
    """Its directory; $namespace, $claim, $pod and $uid are those of the pod that mounts it."""
    read_only: bool = False
    """Whether every mount of it is read-only, whatever the pod says."""


@dataclass(frozen=True)
class NfsExport:
    """NFS export that the site's nodes have mounted; a job cannot mount it itself."""

    server: Word = field(default="", metadata=REQUIRED)
    """The server, as pods name it."""
    export: Path = field(default="", metadata=REQUIRED)
    """The directory of the server."""
    path: Path = field(default="", metadata=REQUIRED)
    """Where the nodes have it."""
    read_only: bool = False
    """Whether every mount of it is read-only, whatever the pod says."""


@dataclass(frozen=True)
class Volumes:
    """Storage that pods can use."""

    scratch: PathOrEmpty = ""
    """Node-local directory for emptyDir volumes and scratch; empty: the job's own directory."""
    memory: Path = "/dev/shm"
    """Directory for emptyDir volumes with medium Memory."""
    host_paths: tuple[HostPath, ...] = ()
    """hostPath volumes are refused unless they are one of these or below one."""
    claims: Mapping[Annotated[str, Kind.CLAIM], Claim] = field(default_factory=dict)
    """The claims that pods can mount; one named with its namespace wins over the bare name."""
    nfs: tuple[NfsExport, ...] = ()
    """nfs volumes are refused unless they are one of these or below one."""


@dataclass(frozen=True)
class Environment:
    """Variables of the site that containers see."""

    set: Mapping[Annotated[str, Kind.VARIABLE], str] = field(default_factory=dict)
    """Variables for every container (proxies, for example); the pod's own win."""
    keep: tuple[Annotated[str, Kind.VARIABLES], ...] = (
        "SLURM_*",
        "PMI*",
        "OMPI_*",
        "*_VISIBLE_DEVICES",
        "NVIDIA_*",
        "GPU_DEVICE_ORDINAL",
        "ZE_AFFINITY_MASK",
        "_CONDOR_*",
    )
    """Variables of the batch system that containers inherit, as shell patterns."""
    path: tuple[Path, ...] = ()
    """Directories put in front of PATH for the job script itself (to find the runtime)."""


@dataclass(frozen=True)
class KubernetesRuntime:
    """Fields of every pod in a pool that is itself a Kubernetes cluster."""

    node_selector: Mapping[Word, Word] = field(default_factory=dict)
    """Labels of the nodes that pods may run on."""
    tolerations: tuple[Annotated[str, Kind.TAINT], ...] = ()
    """Taints that pods tolerate: key=value:effect."""
    runtime_class: Word = ""
    """The RuntimeClass of pods."""
    priority_class: Word = ""
    """The PriorityClass of pods."""
    service_account: Word = ""
    """The ServiceAccount of pods; none of its tokens ever gets into them."""
    pull_secrets: tuple[Word, ...] = ()
    """Secrets of the namespace with which images are pulled, besides the pod's own."""
    queue: Word = ""
    """The LocalQueue of Kueue that pods wait in; empty: they wait for the scheduler alone."""
    claims: Mapping[Annotated[str, Kind.CLAIM], Word] = field(default_factory=dict)
    """Claims that pods can mount, and the PersistentVolumeClaim of the namespace for each."""


@dataclass(frozen=True)
class Script:
    """The bash around the pod."""

    bash: Annotated[str, Kind.PROGRAM] = "/bin/bash"
    """The bash that runs the job, version 4.2 or later; it stands in the script's first line."""
    header: Bash = ""
    """Bash run before anything of the pod (module load, ...)."""
    footer: Bash = ""
    """Bash run after the last container has ended, whatever happened."""
    cgroups: Annotated[str, Choice(("auto", "off"))] = "auto"
    """auto: memory limits by cgroup where the job may make one, else by a watcher; off: watcher."""
    restart_backoff_s: Count = 10
    """Pause before the second restart of a container; doubled each time."""
    restart_backoff_max_s: Count = 300
    """The longest pause before a restart."""
    rerun: bool = False
    """Whether a script that finds itself already started once may run again (a requeued job)."""


@dataclass(frozen=True)
class PodResources:
    """Quantities as Kubernetes writes them."""

    cpu: Optional[Annotated[str, Kind.CPU]] = None
    """Cores: 2, or 500m for half a core."""
    memory: Optional[Annotated[str, Kind.BYTES]] = None
    """Bytes: 512Mi, 4Gi."""
    gpus: Optional[CountOrZero] = None
    """GPUs, of any make."""
    wall_time_s: Optional[Count] = None
    """Seconds from the job's start to its end."""


@dataclass(frozen=True)
class Rules:
    """Limits on the rights and annotations of pods."""

    privileged: bool = False
    """Whether privileged containers and added capabilities are allowed."""
    annotations: tuple[Word, ...] = ("*",)
    """Which job annotations count, by their name after the slash, as shell patterns.

    Some act on the node as the site's user, outside of any container, and are off until they are
    named here in full, for no pattern means them: pre-exec, singularity-commands and
    wstunnel-client-commands (bash), mpi-flags (words for mpiexec, which runs any program),
    singularity-options (options of the runtime), singularity-mounts (paths of the node). So
    ["*", "pre-exec"] turns on pre-exec.
    """
    forbidden_annotations: tuple[Word, ...] = ()
    """These are refused, whatever ``annotations`` says."""

    def refusal(self, name: str) -> str:
        """Return why an annotation is refused, by its name after the slash; empty if it is not."""
        if name in ON_THE_NODE and name not in self.annotations:
            return (
                f"this site does not allow it: it {ON_THE_NODE[name]}, as the site's user;"
                f" rules.annotations of the site's build config turns it on: {name}"
            )
        if not matches_any(name, self.annotations) or matches_any(name, self.forbidden_annotations):
            return "this site does not allow it"
        return ""


@dataclass(frozen=True)
class BuildConfig:
    """The whole configuration; every part has defaults, so that an empty file is a valid one."""

    runtime: Runtime = field(default_factory=Runtime)
    """Which program starts the containers."""
    apptainer: Apptainer = field(default_factory=Apptainer)
    """Flags of Apptainer and Singularity; the other runtimes ignore them."""
    podman: PodmanRuntime = field(default_factory=PodmanRuntime)
    """How podman runs pods; the other runtimes ignore it."""
    images: Images = field(default_factory=Images)
    """Where images come from and where they are kept."""
    volumes: Volumes = field(default_factory=Volumes)
    """Storage that pods can use."""
    environment: Environment = field(default_factory=Environment)
    """What containers see of the site's environment."""
    kubernetes: KubernetesRuntime = field(default_factory=KubernetesRuntime)
    """What every pod of a pool has that is itself a Kubernetes cluster."""
    script: Script = field(default_factory=Script)
    """The bash around the pod."""
    defaults: PodResources = field(default_factory=lambda: PodResources(cpu="1", memory="1Gi"))
    """What a pod gets that asks for nothing."""
    limits: PodResources = field(default_factory=PodResources)
    """The most that a pod may ask for; a pod that asks for more is refused."""
    rules: Rules = field(default_factory=Rules)
    """What pods may ask for."""
