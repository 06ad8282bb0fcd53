"""A pod, once read and checked: plain immutable values, no Kubernetes client.

``create_request.py`` makes them from interLink's create request and ``user_manifests.py`` from
plain manifests. Named tuples, because one is made per pod part on the hot path of ``/create`` and
they are the cheapest immutable values that Python has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

INIT = "init"  # runs to its end before the next one starts
SIDECAR = "sidecar"  # an init container that always restarts: starts in order, is stopped last
MAIN = "main"


class Action(NamedTuple):
    """The action of a probe or a hook."""

    kind: str  # exec | http | tcp | sleep
    command: tuple[str, ...] = ()  # exec
    scheme: str = "http"  # http: http | https
    host: str = ""  # http, tcp: empty means the pod itself, that is localhost
    port: int = 0  # http, tcp: a named port is already resolved to its number
    path: str = "/"  # http
    headers: tuple[tuple[str, str], ...] = ()  # http
    seconds: int = 0  # sleep


class Probe(NamedTuple):
    """A startup, liveness or readiness probe, with Kubernetes' defaults filled in."""

    action: Action
    initial_delay_s: int = 0
    period_s: int = 10
    timeout_s: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    grace_period_s: Optional[int] = None  # of a liveness or startup probe; None means the pod's


class Mount(NamedTuple):
    """The place of a volume in a container."""

    volume: str
    path: str  # absolute, normalised
    read_only: bool = False
    sub_path: str = ""  # relative, normalised, subPathExpr already expanded


class Security(NamedTuple):
    """The parts of pod and container securityContext that some runtime can honour, merged."""

    run_as_user: Optional[int] = None
    run_as_group: Optional[int] = None
    run_as_non_root: bool = False
    privileged: bool = False
    read_only_root: bool = False
    add_capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()
    others: Mapping[str, object] = {}  # fields that only another cluster can honour, as written


class Container(NamedTuple):
    """One container, with everything resolved that can be resolved away from the site."""

    name: str
    kind: str  # INIT | SIDECAR | MAIN
    image: str
    command: tuple[str, ...] = ()  # $(VAR) expanded; empty means the image's entrypoint
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()  # final values, unique names, in the order of the pod
    working_dir: str = ""
    mounts: tuple[Mount, ...] = ()
    requests: Mapping[str, str] = {}  # resource name -> Kubernetes quantity, as written
    limits: Mapping[str, str] = {}
    startup: Optional[Probe] = None
    liveness: Optional[Probe] = None
    readiness: Optional[Probe] = None
    post_start: Optional[Action] = None
    pre_stop: Optional[Action] = None
    message_path: str = "/dev/termination-log"
    message_from_logs: bool = False  # terminationMessagePolicy FallbackToLogsOnError
    pull_policy: str = "IfNotPresent"  # Always | IfNotPresent | Never
    security: Security = Security()


class Volume(NamedTuple):
    """One entry of spec.volumes: its kind is the JSON key, its source the JSON under it."""

    name: str
    kind: str  # emptyDir, configMap, secret, projected, hostPath, persistentVolumeClaim, ...
    source: Mapping[str, object]


class Content(NamedTuple):
    """A ConfigMap or a Secret, decoded."""

    data: Mapping[str, bytes]
    type: str = ""  # of a Secret: kubernetes.io/dockerconfigjson, ...


class Pod(NamedTuple):
    """A pod with all that came with it."""

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[Container, ...]
    """Init containers and sidecars first, in the order of the spec."""
    volumes: tuple[Volume, ...]
    restart_policy: str = "Always"  # Always | OnFailure | Never
    grace_period_s: int = 30
    deadline_s: Optional[int] = None  # activeDeadlineSeconds
    node_name: str = ""
    service_account: str = "default"
    host_aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (ip, names)
    tolerations: tuple[Mapping[str, object], ...] = ()
    pull_secrets: tuple[str, ...] = ()
    overhead: Mapping[str, str] = {}
    requests: Mapping[str, str] = {}  # spec.resources of the pod itself
    limits: Mapping[str, str] = {}
    security: Mapping[
        str, object
    ] = {}  # of the pod itself: fields that only another cluster can honour
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    hostname: str = ""  # the pod's host name, resolved: spec.hostname or the (shortened) pod name
    config_maps: Mapping[str, Content] = {}
    secrets: Mapping[str, Content] = {}
    projected: Mapping[str, Mapping[str, bytes]] = {}
    """Volume name -> path -> content, as interLink resolved it."""
    job_script: str = ""  # a ready script from interLink's JobScriptBuilderURL
    job_config: dict[str, object] = {}  # interLink's jobConfig without its zero values
