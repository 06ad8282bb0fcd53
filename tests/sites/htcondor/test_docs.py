"""docs/htcondor.md, followed to the letter for both ways in: a pod runs in the end.

What the page calls ce.example.org and iam.example.org has other names at the site, where no
registry can be reached either: its image is in the cache, as an earlier pod would leave it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.condor.files import AUDIENCE, AUTHORITY, CLIENT, IAM, IAM_PORT
from scripts.lib.interlink import create_request
from templates.resolve.images import find
from templates.site.build_config import Images
from tests.sites.htcondor.element import REMOTE, SECRET, Element, users_file
from tests.sites.htcondor.site import USER, RunningSite
from tests.support.pages import Admin, Steps, centre_for
from tests.support.script_runner import BUSYBOX
from tests.support.system import System, job_of

STEPS = Steps("htcondor.md")
ELSEWHERE = Steps("htcondor.md", "A computing element elsewhere")
POOL = "mypool"
PYTHON = "/opt/interlink/current/bin/python"
CALLED = {
    "audience: ce.example.org:9618": f"audience: {AUDIENCE}",
    "ce.example.org:9618": REMOTE["collector"],
    "ce.example.org": REMOTE["schedd"],
    "https://iam.example.org": f"https://{IAM}:{IAM_PORT}",
    "interlink-mysite": CLIENT,
}


def put_image(site: RunningSite, machine: str, cache: str) -> None:
    """The page's image is in the user's cache."""
    file = f"{cache}/{find(BUSYBOX, 'apptainer', Images(cache=cache), '', '').file}"
    lines = f"mkdir -p {cache}; cp /srv/images/busybox_1.36.sif {file}; touch {file}.checked"
    site.do(machine, "bash", "-c", lines, user=USER)


def at_the_site(text: str) -> str:
    """With the names that the site of the tests has."""
    for there, here in CALLED.items():
        text = text.replace(there, here)
    return text


def check_and_start(admin: Admin) -> None:
    """The two steps that both ways in have."""
    check, start = STEPS.commands[3:5]
    assert "backend htcondor: offers cpu 16, " in admin.check(check)
    admin.type(start)


def run_the_pod(centre: System, admin: Admin, look: str) -> None:
    """The page's pod runs, as its last command shows, and ends well."""
    centre.wait_until_ready()
    request: dict[str, Any] = create_request([("page", STEPS.blocks("yaml")[1])], POOL)
    centre.plugin.create(request)
    pod = request["pod"]
    centre.until(lambda: "running" in str(centre.status(pod)), "the pod runs", 90)
    shown = admin.type(look)
    assert re.fullmatch(rf"2 slot\S+@n[12]\S* {job_of(pod)}\n", shown)
    (end,) = centre.ended(pod, 90)
    assert end["exitCode"] == 0
    assert centre.log(pod, "main").startswith(b"hello from n")


# --- at an access point ---------------------------------------------------------------------------


@pytest.fixture
def admin(site: RunningSite) -> Iterator[Admin]:
    """Somebody at the access point, where a folder is shared with the machines."""
    (site.home.parent / "shared").mkdir(exist_ok=True)
    for machine in ("login", *site.nodes):
        site.do(machine, "mkdir", "-p", "/shared")
        site.do(machine, "mount", "--bind", "/home/shared", "/shared")
    yield Admin(site)
    site.do("login", "bash", "-c", "pkill -f '[b]in/interlink-submitter'; true")


def test_a_pod_runs_by_the_page(site: RunningSite, admin: Admin, tmp_path: Path) -> None:
    install, folders, key, _check, _start, look = STEPS.commands
    with centre_for(site, tmp_path, POOL) as centre:
        admin.take("mysite.nkey")
        for command in (install, folders, key):
            admin.type(command)
        admin.write("/etc/interlink/submitter.yaml", STEPS.blocks("yaml")[0])
        put_image(site, "login", "/shared/interlink/images")
        check_and_start(admin)
        run_the_pod(centre, admin, look)


# --- with an element elsewhere --------------------------------------------------------------------


@pytest.fixture
def away(the_element: Element) -> Iterator[Admin]:
    """Somebody on the machine from which the element is used."""
    yield Admin(the_element, the_element.door)
    end = ["bash", "-c", "pkill -f '[b]in/interlink-submitter'; true"]
    the_element.do(the_element.door, *end)
    the_element.restore()


def believe_the_issuer(admin: Admin) -> None:
    """Its CA is one of those that are usual."""
    usual = admin.type(f"{PYTHON} -c 'import certifi; print(certifi.where())'").strip()
    admin.type(f"cat {AUTHORITY} >>{usual}")


def test_a_pod_runs_at_an_element_by_the_page(
    the_element: Element, away: Admin, tmp_path: Path
) -> None:
    *prepare, look = map(at_the_site, ELSEWHERE.commands)
    (configuration,) = map(at_the_site, ELSEWHERE.blocks("yaml"))
    for node in the_element.nodes:
        put_image(the_element, node, f"/home/{USER}/.interlink/images")
    with centre_for(the_element, tmp_path, POOL) as centre:
        users_file(the_element.home / "client.secret", SECRET)
        away.take("mysite.nkey", "client.secret")
        away.type(f"cp {AUTHORITY} ~/ce-ca.pem")
        for command in prepare:
            away.type(command)
        believe_the_issuer(away)
        away.write("/etc/interlink/submitter.yaml", configuration)
        check_and_start(away)
        run_the_pod(centre, away, look)
