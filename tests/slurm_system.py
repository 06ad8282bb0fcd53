"""The whole system with its submitter at a Slurm site: on the login node, as an ordinary user.

    with running(folder) as site, system_at(site, folder / "system") as system:
        pod = system.run("hostname")
        assert system.ended(pod)[0]["exitCode"] == 0

The plugin and NATS run here, the submitter reaches them by the one way out that the login node has.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional

import yaml

from tests.slurm_site import CENTRE, CENTRE_PORT, USER_ID, SlurmSite
from tests.system import POOL, System, job_of, request_of, running

IMAGE = "/srv/images/busybox_1.36.sif"
TIMING = {"poll_s": 1, "spool_s": 1}


class SlurmSystem(System):
    """One whose pool is a Slurm site's."""

    def __init__(self, folder: Path, slurm: SlurmSite, **options: Any) -> None:
        self.slurm = slurm
        super().__init__(folder, **options)
        self.site = self._home

    @property
    def _home(self) -> Path:
        """What the submitter has at the site; another system there has another one."""
        return self.slurm.home / self.folder.name

    def _add_submitter(self, number: int, pools: Sequence[str], settings: dict[str, Any]) -> None:
        self._home.mkdir(exist_ok=True)
        shutil.copy(self.nats.ca_file, self._home / "ca.pem")
        entries = [
            {
                "name": pool,
                "directory": str(self._home / pool),
                "backend": "slurm",
                "build": {"runtime": {"name": "apptainer"}},
                "timing": TIMING,
                **settings,
            }
            for pool in pools
        ]
        server = f"wss://{CENTRE}:{CENTRE_PORT}"
        nats = {"servers": [server], "ca_file": str(self._home / "ca.pem")}
        file = self._home / f"submitter{number}.yaml"
        file.write_text(yaml.safe_dump({"nats": nats, "pools": entries}))
        for path in (self._home, *self._home.iterdir()):
            os.chown(path, USER_ID, USER_ID)
        command = self.slurm.python(["-m", "submitter", "--config", str(file)])
        self._add(f"submitter{number}", command)

    def start_all(self) -> None:
        self.slurm.lead_to(self.nats.websocket_port)
        super().start_all()

    # --- pods -----------------------------------------------------------------------------------

    def run(
        self,
        *commands: str,
        pool: str = POOL,
        says: Optional[Mapping[str, str]] = None,
        family: str = "slurm-job.vk.io",
        **spec: Any,
    ) -> dict[str, Any]:
        """Create a pod, with annotations for its job; its raw pod."""
        request = pod_of(*commands, pool=pool, **spec)
        annotations = {f"{family}/{name}": value for name, value in (says or {}).items()}
        request["pod"]["metadata"]["annotations"] = annotations
        self.plugin.create(request)
        pod: dict[str, Any] = request["pod"]
        return pod

    def state(self, pod: dict[str, Any]) -> dict[str, Any]:
        """How /status has its first container."""
        status = self.status(pod)
        state: dict[str, Any] = status["containers"][0]["state"] if status else {}
        return state

    def until_running(self, pod: dict[str, Any]) -> str:
        """Wait for its first container; returns the number of its job."""
        self.until(lambda: "running" in self.state(pod), "it runs", 60)
        return self.numbers(pod)[-1]

    def waits(self, pod: dict[str, Any], reason: str, seconds: float = 60) -> str:
        """Wait until the pod waits for this reason; returns the message beside it."""

        def look() -> Optional[str]:
            waiting = self.state(pod).get("waiting", {})
            return f"{waiting.get('message')}" if waiting.get("reason") == reason else None

        found: str = self.until(look, f"waits for {reason}: {self.state(pod)}", seconds)
        return found

    def end(self, pod: dict[str, Any], seconds: float = 90) -> tuple[int, str]:
        """Wait for the end of its only container: exit code and message."""
        (ended,) = self.ended(pod, seconds)
        return ended["exitCode"], ended["message"]

    def numbers(self, pod: dict[str, Any]) -> list[str]:
        """Of all jobs that Slurm has, or had, for it."""
        name = f"--name={job_of(pod)}"
        return self.slurm.admin("squeue", "-h", "-t", "all", name, "-S", "i", "-o", "%i").split()


@contextlib.contextmanager
def system_at(slurm: SlurmSite, folder: Path, **options: Any) -> Iterator[SlurmSystem]:
    """A system, up and ready, with its submitter at this site."""
    folder.mkdir(parents=True, exist_ok=True)
    kind: Any = partial(SlurmSystem, slurm=slurm)
    with running(folder, kind=kind, **options) as system:
        assert isinstance(system, SlurmSystem)
        yield system


def pod_of(
    *commands: str,
    image: str = IMAGE,
    resources: Optional[dict[str, Any]] = None,
    mounts: Sequence[dict[str, Any]] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A create request as ``request_of`` makes it, with an image that the site has."""
    request = request_of(*commands, **spec)
    for container in request["pod"]["spec"]["containers"]:
        container["image"] = image
        container["resources"] = resources or {}
        container["volumeMounts"] = list(mounts)
    return request
