"""Starting a Slurm site, and making the database that all sites begin with."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scripts.lib.slurm import files
from scripts.lib.slurm.machines import Trouble, start_relay, start_site, until
from scripts.lib.slurm.programs import PATIENCE_S
from scripts.lib.slurm.site import OUTSIDE, REPOSITORY, Site

FOLDERS = ("etc", "home", "log", "spool", "database", "root")
# In the root, ready to be copied: the database with accounts and all, and the controller's files,
# without which it does not start again when it is killed before it has written all of them.
KEPT = "opt/slurm-site"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


class Plan(NamedTuple):
    """Properties of a site that is to be made."""

    root: Path  # the file system that its machines share
    python: str  # in there, with what our packages need
    nodes: int = 3  # with none there is no Slurm either: a login node and nothing else
    accounting: bool = True
    podman: bool = False  # whether users run containers with podman on the login node
    changes: Mapping[str, str] = {}  # of slurm.conf


def up(site: Site, plan: Plan) -> None:
    """Start all of it; whatever keeps it from that, nothing is left running."""
    site.directory.mkdir(parents=True, exist_ok=True)
    with site.locked(), _building(site, plan):
        slurm = ("ctl", *site.nodes) if site.nodes else ()
        for name in (OUTSIDE, "login", *slurm):
            site.start_machine(name)
        _lead_outside(site)
        for name in ("login", *slurm):
            for program in site.programs(name):
                site.start_program(program, name)
        _wait_for_nodes(site)


def prepare_database(site: Site, plan: Plan) -> None:
    """Make the database with its accounts, and keep it in the root for all sites to come."""
    with _building(site, plan):
        site.start_machine("ctl")
        install = "mariadb-install-db --defaults-file=/etc/slurm/mariadb.cnf --user=mysql"
        site.do("ctl", *install.split(), "--skip-test-db")
        site.start_program("mariadbd", "ctl")
        grant = (
            "CREATE USER slurm@localhost IDENTIFIED VIA unix_socket;"
            "GRANT ALL ON slurm_acct_db.* TO slurm@localhost"
        )
        client = ["mariadb", "--defaults-file=/etc/slurm/mariadb.cnf", "--execute", grant]
        site.do("ctl", *client)
        site.start_program("slurmdbd", "ctl")
        for line in files.ACCOUNTS:
            site.do("ctl", "sacctmgr", "--immediate", *line.split())
        site.start_program("slurmctld", "ctl")
        for program in ("slurmctld", "slurmdbd", "mariadbd"):
            site.stop(program)
        _keep(site, plan.root / KEPT)
    site.down()


def _keep(site: Site, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    _copy(site.directory / "database", target / "database")
    _copy(site.directory / "spool" / "ctld", target / "ctld")


@contextlib.contextmanager
def _building(site: Site, plan: Plan) -> Iterator[None]:
    """The site without machines; it is kept when nothing is raised, and nobody kills us."""
    _make_folders(site, plan)
    reading, writing = os.pipe()
    try:
        building = start_site(plan.root, site.directory, reading)
        nodes = files.node_names(plan.nodes)
        site.note(site=building, machines={}, nodes=nodes, accounting=plan.accounting)
        site.note(podman=plan.podman)
        site.note(python=plan.python, **_ways(site))
        yield
        os.write(writing, b"ready\n")
    except BaseException:
        if site.file.exists():
            site.end()
        raise
    finally:
        os.close(reading)
        os.close(writing)


def _ways(site: Site) -> dict[str, Any]:
    """How others talk to the site."""
    return {
        "user": files.USER,
        "home": str(site.home),
        "repository": REPOSITORY,
        "nats": {
            "host": files.CENTRE,
            "port": files.CENTRE_PORT,
            "leads_to": str(site.directory / "nats-port"),
        },
    }


def _make_folders(site: Site, plan: Plan) -> None:
    """All that the site writes, with nothing of an earlier one in it."""
    if site.file.exists():
        if site.building.is_alive:
            raise Trouble(f"{site.directory}: its site is up already")
        site.file.unlink()
    elif set(os.listdir(site.directory)) - {"lock", "nats-port", *FOLDERS}:
        raise Trouble(f"{site.directory}: is neither empty nor a site's folder")
    for name in FOLDERS:
        shutil.rmtree(site.directory / name, ignore_errors=True)
        (site.directory / name).mkdir()
    site.home.mkdir()
    os.chown(site.home, files.USER_ID, files.USER_ID)
    os.chown(site.directory / "spool", files.SLURM_ID, files.SLURM_ID)
    for name in ("log", "database"):
        (site.directory / name).chmod(0o777)
    kept = plan.root / KEPT
    if kept.exists():
        _copy(kept / "ctld", site.directory / "spool" / "ctld")
    if kept.exists() and plan.accounting:
        (site.directory / "database").rmdir()
        _copy(kept / "database", site.directory / "database")
    _write_configuration(site, plan)


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(target)], check=True)


def _write_configuration(site: Site, plan: Plan) -> None:
    nodes = files.node_names(plan.nodes)
    texts = files.configuration(nodes, accounting=plan.accounting, changes=plan.changes)
    for name, text in texts.items():
        (site.directory / "etc" / name).write_text(text)
    shutil.copy(plan.root / CERTIFICATES, site.certificates)
    secret = site.directory / "etc" / "slurmdbd.conf"
    if secret.exists():
        secret.chmod(0o600)
        os.chown(secret, files.SLURM_ID, files.SLURM_ID)


def _lead_outside(site: Site) -> None:
    outside = site.machine(OUTSIDE)
    subprocess.run(outside.enter(["nft", "-f", "-"]), input=files.BORDER, text=True, check=True)
    address = (files.OUTSIDE, files.CENTRE_PORT)
    start_relay(site.building, outside, address, site.directory / "nats-port")


def _wait_for_nodes(site: Site) -> None:
    wanted = len(site.nodes)
    if not wanted:
        return

    def idle() -> bool:
        done = site.run("ctl", ["sinfo", "-h", "-N", "-p", "main", "-o", "%t"])
        return done.stdout.split().count("idle") == wanted

    until(idle, PATIENCE_S, f"{wanted} idle nodes: see {site.directory}/log")
