"""What a site's login node has besides Slurm: a mirror of Docker Hub, and a site without Slurm."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from scripts.lib.slurm.machines import Trouble
from tests.sites.slurm.site import CENTRE, CENTRE_PORT, SlurmSite, running

PULL = ["apptainer", "-s", "exec", "docker://busybox:1.36", "sh", "-c", "echo $(pwd) in $0", "it"]
ASK = f"exec 3<>/dev/tcp/{CENTRE}/{CENTRE_PORT}; cat <&3"


def test_images_come_by_the_names_that_they_have_everywhere(site: SlurmSite) -> None:
    for machine in ("login", site.nodes[0]):
        assert site.do(machine, *PULL, user="alice").strip() == "/home/alice in it"
    site.kill("docker-registry")
    code, told = site.attempt(*(word.replace("1.36", "none") for word in PULL))
    assert code == 255 and "connection refused" in told
    site.start("docker-registry")
    code, told = site.attempt(*(word.replace("1.36", "none") for word in PULL))
    assert code == 255 and "manifest unknown" in told


def test_a_site_without_slurm_is_a_login_node_behind_its_border(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.9", 0)) as server,
        running(tmp_path / "site", nodes=0) as site,
    ):
        assert set(site.facts["machines"]) == {"outside", "login"}
        assert site.do("login", *PULL, user="alice").strip() == "/home/alice in it"
        with pytest.raises(Trouble, match="neither a machine"):
            site.kill("slurmctld")

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"from another address\n")

        thread = threading.Thread(target=answer)
        thread.start()
        site.lead_to(server.getsockname()[1], "127.0.0.9")
        assert site.login("bash", "-c", ASK) == "from another address\n"
        thread.join(20)
        # What a power cut takes down with it comes up again.
        site.kill("login")
        site.start("login")
        assert site.do("login", *PULL, user="alice").strip() == "/home/alice in it"
