"""docs/slurm.md, followed to the letter at a site that has nothing yet: a pod runs in the end.

Two commands are stand-ins, because the machines of the site have neither: sudo, which the
administrator who types is anyway, and systemctl, which starts what the unit says, as who it says.
"""

from __future__ import annotations

import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.lib import certificates
from scripts.lib.interlink import create_request
from templates import permissions
from tests import nats_users
from tests.slurm_site import USER, SlurmSite
from tests.system import REPO, System, job_of

TEXT = (REPO / "docs" / "slurm.md").read_text(encoding="utf-8")
STEPS = TEXT.split("\n## From nothing to a pod that ran\n")[1].split("\n## ")[0]

SUDO = """\
#!/bin/bash
if [ "$1" = -u ]; then user=$2; shift 2; exec runuser -u "$user" -- "$@"; fi
exec "$@"
"""
SYSTEMCTL = """\
#!/bin/bash
[ "$1 $2" = "enable --now" ] || exit 1
unit=/etc/systemd/system/$3.service
user=$(sed -n 's/^User=//p' "$unit".d/*.conf)
start=$(sed -n 's/^ExecStart=//p' "$unit")
exec setsid --fork runuser -u "$user" -- $start >>/var/log/slurm/submitter.log 2>&1 </dev/null
"""


def blocks(kind: str) -> list[str]:
    return [textwrap.dedent(one) for one in re.findall(rf"```{kind}\n(.*?)```", STEPS, re.DOTALL)]


class Admin:
    """Who follows the page, as root on the login node."""

    def __init__(self, site: SlurmSite) -> None:
        self._site = site
        for name, text in (("sudo", SUDO), ("systemctl", SYSTEMCTL)):
            self.write(f"/run/bin/{name}", text)
        self.type("chmod 755 /run/bin/*; mkdir -p /shared")
        (site.home.parent / "shared").mkdir(exist_ok=True)
        for machine in ("login", *site.nodes):
            site.do(machine, "mount", "--bind", "/home/shared", "/shared")

    def type(self, command: str) -> str:
        # The login node reaches no package index, as the page says it may be.
        wheels = f"{Path(self._site.facts['python']).parent.parent}/wheels"
        before = f"export PATH=/run/bin:$PATH PIP_NO_INDEX=1 PIP_FIND_LINKS={wheels}; set -e"
        line = f"{before}; cd {self._site.facts['repository']}; {command}"
        done = self._site.run("login", ["bash", "-c", line], seconds=300)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def write(self, file: str, text: str) -> None:
        self._site.do("login", "mkdir", "-p", str(Path(file).parent))
        self._site.do("login", "bash", "-c", f"printf %s {shlex.quote(text)} >{file}")


@pytest.fixture
def centre(site: SlurmSite, tmp_path: Path) -> Iterator[System]:
    """A NATS server that asks who one is, and a plugin that says it."""
    users = nats_users.Site(tmp_path)
    certificates.make(users.server.folder, ("localhost", "nats.example.org"))
    with site.certificates.open("a") as trusted:
        trusted.write(Path(users.server.ca_file).read_text())
    users("add", "mysite", "mypool")
    shutil.copy(users.seed_file("mysite"), site.home / "mysite.nkey")
    nats = {
        "servers": [users.server.websocket_url],
        "ca_file": users.server.ca_file,
        "nkey_file": users.seed_file("plugin"),
        "inbox_prefix": permissions.inbox_of("plugin"),
    }
    (tmp_path / "system").mkdir()
    system = System(tmp_path / "system", submitters=0, plugin={"nats": nats})
    system.nats = users.server
    site.lead_to(users.server.websocket_port)
    try:
        users.server.start()
        system.processes["plugin"].start()
        yield system
    finally:
        system.__exit__()


@pytest.fixture
def partitions(site: SlurmSite) -> Iterator[None]:
    """The ones that the page is about."""
    for name, nodes in (("batch", "ALL"), ("gpu", "n3")):
        site.admin("scontrol", "create", f"partitionname={name}", f"nodes={nodes}")
    yield
    site.do("login", "bash", "-c", "pkill -f '[b]in/interlink-submitter'; true")
    site.restore()
    for name in ("batch", "gpu"):
        site.admin("scontrol", "delete", f"partitionname={name}")


def test_a_pod_runs_by_the_page(site: SlurmSite, centre: System, partitions: None) -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [re.sub(r"\bU\b", USER, command) for command in commands]
    configuration, manifest = blocks("yaml")
    admin = Admin(site)
    admin.type(f"mv {site.home}/mysite.nkey ~/mysite.nkey")
    for command in commands[:3]:
        admin.type(command)
    admin.write("/etc/interlink/submitter.yaml", configuration)
    checked = admin.type(commands[3]).splitlines()
    assert [line for line in checked if not line.startswith(("ok ", "note "))] == []
    assert "backend slurm: offers cpu 24, " in "\n".join(checked)
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
