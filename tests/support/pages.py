"""A page of docs/ that is followed to the letter, at a site that has nothing yet.

Two commands are stand-ins, because the machines of the site have neither: sudo, which the
administrator who types is anyway, and systemctl, which starts what the unit says, as who it says.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

from scripts.lib import certificates
from scripts.lib.slurm.files import USER
from templates.nats import permissions
from tests.support import nats_users
from tests.support.login_node import LoginNode
from tests.support.system import REPO, System

HEADING = "From nothing to a pod that ran"
LOG = f"/home/{USER}/submitter.log"
SUDO = """\
#!/bin/bash
[ "$1" = -u ] || exec "$@"
# Where systemd would put this user's processes.
[ ! -e /run/users ] || echo $$ >/run/users
exec runuser -u "$2" -- env HOME="$(getent passwd "$2" | cut -d: -f6)" USER="$2" "${@:3}"
"""
SYSTEMCTL = f"""\
#!/bin/bash
[ "$1 $2" = "enable --now" ] || exit 1
unit=/etc/systemd/system/$3.service
user=$(sed -n 's/^User=//p' "$unit".d/*.conf)
start=$(sed -n 's/^ExecStart=//p' "$unit")
more=$(sed -n 's/^Environment=//p' "$unit".d/*.conf)
key=$(sed -n 's/^StandardInput=file://p' "$unit".d/*.conf)
exec setsid --fork sudo -u "$user" env $more $start >>{LOG} 2>&1 <"$key"
"""


class Steps:
    """What a page says on how to begin, or below another heading."""

    def __init__(self, page: str, heading: str = HEADING) -> None:
        text = (REPO / "docs" / page).read_text(encoding="utf-8")
        self._text = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]

    def blocks(self, kind: str) -> list[str]:
        found = re.findall(rf"```{kind}\n(.*?)```", self._text, re.DOTALL)
        return [textwrap.dedent(one) for one in found]

    @property
    def commands(self) -> list[str]:
        """All that is typed, with the site's user for ``U``."""
        whole = [re.sub(r"\\\n *", "", block) for block in self.blocks("sh")]
        lines = [line for block in whole for line in block.splitlines()]
        return [re.sub(r"\bU\b", USER, line) for line in lines]


class Admin:
    """Who follows the page, as root on the machine where the submitter belongs."""

    def __init__(self, site: LoginNode, machine: str = "login") -> None:
        self._site, self._machine = site, machine
        for name, text in (("sudo", SUDO), ("systemctl", SYSTEMCTL)):
            self.write(f"/run/bin/{name}", text)
        self.type("chmod 755 /run/bin/*")

    def type(self, command: str) -> str:
        # This machine reaches no package index, as the page says it may be.
        wheels = f"{Path(self._site.facts['python']).parent.parent}/wheels"
        before = f"export PATH=/run/bin:$PATH PIP_NO_INDEX=1 PIP_FIND_LINKS={wheels}; set -e"
        line = f"{before}; cd {self._site.facts['repository']}; {command}"
        done = self._site.run(self._machine, ["bash", "-c", line], seconds=300)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def write(self, file: str, text: str) -> None:
        self._site.do(self._machine, "mkdir", "-p", str(Path(file).parent))
        self._site.do(self._machine, "bash", "-c", f"printf %s {shlex.quote(text)} >{file}")

    def take(self, *names: str) -> None:
        """Have files at hand that somebody has put into the user's home."""
        for name in names:
            self.type(f"mv {self._site.home}/{name} ~/{name}")

    def check(self, command: str) -> str:
        """What the submitter's own check says, which has to be content."""
        checked = self.type(command).splitlines()
        assert [line for line in checked if not line.startswith(("ok ", "note "))] == []
        return "\n".join(checked)


@contextlib.contextmanager
def centre_for(site: LoginNode, folder: Path, pool: str) -> Iterator[System]:
    """A NATS server that asks who one is, with a key for the site, and a plugin that says it."""
    users = nats_users.Site(folder)
    certificates.make(users.server.folder, ("localhost", "nats.example.org"))
    with site.certificates.open("a") as trusted:
        trusted.write(Path(users.server.ca_file).read_text())
    users("add", "mysite", pool)
    shutil.copy(users.seed_file("mysite"), site.home / "mysite.nkey")
    nats = {
        "servers": [users.server.websocket_url],
        "ca_file": users.server.ca_file,
        "nkey_file": users.seed_file("plugin"),
        "inbox_prefix": permissions.inbox_of("plugin"),
    }
    (folder / "system").mkdir()
    system = System(folder / "system", submitters=0, plugin={"nats": nats})
    system.nats = users.server
    site.lead_to(users.server.websocket_port)
    try:
        users.server.start()
        system.processes["plugin"].start()
        yield system
    finally:
        system.__exit__()
