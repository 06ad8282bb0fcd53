"""The whole system with its submitter at a Slurm site: on the login node, as an ordinary user.

    with running(folder) as site, system_at(site, folder / "system") as system:
        pod = system.run("hostname")
        assert system.ended(pod)[0]["exitCode"] == 0

Its jobs run in containers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from templates.site.build_config import ON_THE_NODE
from tests.sites.slurm.site import SlurmSite
from tests.support.site_system import TIMING, SiteSystem, at_site
from tests.support.system import POOL, job_of, request_of

__all__ = ["ALL_ANNOTATIONS", "IMAGE", "OWN_IMAGES", "TIMING", "SlurmSystem", "pod_of", "system_at"]

IMAGE = "/srv/images/busybox_1.36.sif"
ALL_ANNOTATIONS = {"annotations": ["*", *ON_THE_NODE]}
OWN_IMAGES = ["*", "/srv/images/*"]


class SlurmSystem(SiteSystem):
    """One whose pool is a Slurm site's."""

    defaults = {
        "backend": "slurm",
        "build": {"runtime": {"name": "apptainer"}},
        "policy": {"images": OWN_IMAGES},
    }

    @property
    def slurm(self) -> SlurmSite:
        """Its site."""
        assert isinstance(self.at, SlurmSite)
        return self.at

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
    with at_site(SlurmSystem, slurm, folder, **options) as system:
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
