"""A row of docs/pods.md as a pod, which ends by itself and says what it has seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from tests.support.script_runner import BUSYBOX, config_map, pod, secret, sh

Json = dict[str, Any]


APPTAINER, PODMAN, CLUSTER = "apptainer", "podman", "kubernetes"

# What runs the pods of each kind of site.
RUNTIMES = {
    "host": APPTAINER,
    "slurm": APPTAINER,
    "htcondor": APPTAINER,
    "podman": PODMAN,
    "kubernetes": CLUSTER,
}

Limits = Mapping[str, str]
"""What is not as on a real node, by its name in ``outcomes.py``: words of docs/limits.md."""


class Row(NamedTuple):
    """A pod, and the objects that it needs."""

    pod: Json
    needs: tuple[Json, ...]
    everywhere: Limits
    under: Mapping[str, Limits]  # besides, by the runtime
    refused: Mapping[str, str]  # the words of a refusal, by the runtime

    @property
    def runs_somewhere(self) -> bool:
        return self.refused.keys() != {*RUNTIMES.values()}

    def limits(self, site: str) -> Limits:
        """What differs at a site of this kind."""
        return {**self.everywhere, **self.under.get(RUNTIMES[site], {})}


ROWS: dict[str, Row] = {}


def row(
    name: str,
    *containers: Json,
    needs: tuple[Json, ...] = (),
    differs: Optional[Limits] = None,
    under: Optional[Mapping[str, Limits]] = None,
    refused: Optional[Mapping[str, str]] = None,
    **spec: Any,
) -> None:
    """Note one."""
    made = pod(*containers, name=name, **spec)
    ROWS[name] = Row(made, needs, differs or {}, under or {}, refused or {})


def refusal(name: str, words: str, *containers: Json, cluster: str = "", **spec: Any) -> None:
    """Note one that no site can give; a cluster may say so in other words."""
    refused = {**dict.fromkeys(RUNTIMES.values(), words), CLUSTER: cluster or words}
    row(name, *containers, refused=refused, **spec)


def mount(name: str, path: str, **more: Any) -> Json:
    return {"name": name, "mountPath": path, **more}


def probe(action: Json, **numbers: int) -> Json:
    """One that is patient with a machine that does other things, too."""
    return {**action, "periodSeconds": 1, "timeoutSeconds": 20, **numbers}


def execute(script: str) -> Json:
    return {"exec": {"command": ["sh", "-c", script]}}


WORDS = config_map("words", data={"a": "apple\n", "b.txt": "two\nlines"}, binaryData={"x": "AAEC"})
KEYS = secret("keys", stringData={"password": "pass 'word' $HOME", "user": "alice"})
SHOW = 'for f; do echo "$f: $(od -An -c "$f" | tr -s " \\n" " ")"; done'
TRY_TO_WRITE = "touch {} 2>/dev/null || echo read-only"
WAIT = "while :; do sleep 0.1; done"

# Where docs/limits.md says what becomes of reasons.
IN_THE_MESSAGE = "stand in its message"

# Claims that each namespace has: each site has a place for the first, none for the second, and the
# third is made for a pod.
CLAIM, NO_PLACE = "shared", "elsewhere"
EPHEMERAL = "ephemeral-d"  # Kubernetes calls it after the pod and its volume

# A volume that the containers of a pod share, and their next starts.
D = [{"name": "d", "emptyDir": {}}]
ON_D = [mount("d", "/d")]


def init(name: str, script: str, **more: Any) -> Json:
    return {"name": name, "image": BUSYBOX, **sh(script, volumeMounts=ON_D, **more)}
