"""docs/slurm.md, followed to the letter at a site that has nothing yet: a pod runs in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.lib.interlink import create_request
from tests.sites.slurm.site import SlurmSite
from tests.support.pages import Admin, Steps, centre_for
from tests.support.system import System, job_of

STEPS = Steps("slurm.md")


@pytest.fixture
def centre(site: SlurmSite, tmp_path: Path) -> Iterator[System]:
    with centre_for(site, tmp_path, "mypool") as found:
        yield found


@pytest.fixture
def partitions(site: SlurmSite) -> Iterator[None]:
    """The ones that the page is about, and a folder that all machines share."""
    (site.home.parent / "shared").mkdir(exist_ok=True)
    for machine in ("login", *site.nodes):
        site.do(machine, "mkdir", "-p", "/shared")
        site.do(machine, "mount", "--bind", "/home/shared", "/shared")
    for name, nodes in (("batch", "ALL"), ("gpu", "n3")):
        site.admin("scontrol", "create", f"partitionname={name}", f"nodes={nodes}")
    yield
    site.do("login", "bash", "-c", "pkill -f '[b]in/interlink-submitter'; true")
    site.restore()
    for name in ("batch", "gpu"):
        site.admin("scontrol", "delete", f"partitionname={name}")


def test_a_pod_runs_by_the_page(site: SlurmSite, centre: System, partitions: None) -> None:
    commands, (configuration, manifest) = STEPS.commands, STEPS.blocks("yaml")
    admin = Admin(site)
    admin.take("mysite.nkey")
    for command in commands[:3]:
        admin.type(command)
    admin.write("/etc/interlink/submitter.yaml", configuration)
    assert "backend slurm: offers cpu 24, " in admin.check(commands[3])
    admin.type(commands[4])
    centre.wait_until_ready()
    request: dict[str, Any] = create_request([("page", manifest)], "mypool")
    centre.plugin.create(request)
    pod = request["pod"]
    centre.until(lambda: "running" in str(centre.status(pod)), "the pod runs", 90)
    shown = admin.type(commands[5])
    assert f"RUNNING {job_of(pod)}" in shown
    (end,) = centre.ended(pod, 90)
    assert end["exitCode"] == 0
    assert centre.log(pod, "main").startswith(b"hello from n")
    assert len(commands) == 6
    assert yaml.safe_load(configuration)["pools"][0]["name"] == "mypool"
