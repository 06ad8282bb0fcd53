"""docs/podman.md, followed to the letter on a login node for podman: a pod runs in the end.

The machine has the user already, and no systemd: who makes users and lets them linger has nothing
to do, and where systemd would put the service's processes, the stand-in for systemctl puts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.lib.interlink import create_request
from tests.sites.slurm.site import USER_ID, SlurmSite, running
from tests.support.pages import Admin, Steps, centre_for
from tests.support.system import System, job_of

STEPS = Steps("podman.md")
POOL = "podman-firenze"
OVERRIDE = "/etc/systemd/system/interlink-submitter.service.d/override.conf"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SlurmSite]:
    with running(tmp_path / "site", nodes=0, accounting=False, podman=True) as one:
        yield one


@pytest.fixture
def centre(host: SlurmSite, tmp_path: Path) -> Iterator[System]:
    with centre_for(host, tmp_path, POOL) as found:
        yield found


def test_a_pod_runs_by_the_page(host: SlurmSite, centre: System) -> None:
    commands, (configuration, manifest) = STEPS.commands, STEPS.blocks("yaml")
    (override,) = STEPS.blocks("ini")
    admin = Admin(host)
    admin.take("mysite.nkey")
    assert [command.split()[1] for command in commands[:2]] == ["useradd", "loginctl"]
    for command in commands[2:5]:
        admin.type(command)
    admin.write(OVERRIDE, override.replace("1001", str(USER_ID)))
    admin.write("/etc/interlink/submitter.yaml", configuration)
    assert "backend podman: offers cpu 16, " in admin.check(commands[5])
    admin.type(commands[6])
    centre.wait_until_ready()
    request: dict[str, Any] = create_request([("page", manifest)], POOL)
    centre.plugin.create(request)
    pod = request["pod"]
    centre.until(lambda: "running" in str(centre.status(pod)), "the pod runs", 90)
    assert admin.type(commands[7]) == f"{job_of(pod)}-0 running\n"
    (end,) = centre.ended(pod, 90)
    assert end["exitCode"] == 0
    assert centre.log(pod, "main").startswith(b"hello from ")
    centre.until(lambda: admin.type(commands[7]) == "", "nothing is left of it")
    assert len(commands) == 8
    assert yaml.safe_load(configuration)["pools"][0]["name"] == POOL
