"""A computing element that takes tokens, its issuer, and pools that use it from another machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.lib import certificates
from scripts.lib.condor.files import AUDIENCE, AUTHORITY, CLIENT, DOMAIN, IAM, IAM_PORT
from tests.sites.htcondor.site import USER_ID, RunningSite, running, until
from tests.support.login_node import REPO

SECRET = "words of a client"
LIFETIME_S = 20  # of tokens: many of them in each test
REFRESH = "a refresh token to begin with"
REMOTE = {
    "schedd": f"login.{DOMAIN}",
    "collector": f"ctl.{DOMAIN}:9618",
    "ca_file": AUTHORITY,
}


class Element(RunningSite):
    """One that runs, with the process of its issuer."""

    issuer: subprocess.Popen[bytes]

    def asked(self) -> list[dict[str, str]]:
        """What the issuer was asked, and what became of it (``given``)."""
        lines = (self.directory.parent / "iam" / "asked").read_text().splitlines()
        return list(map(json.loads, lines))


def users_file(path: Path, text: str) -> Path:
    """A file that is the user's alone."""
    path.write_text(text)
    path.chmod(0o600)
    os.chown(path, USER_ID, USER_ID)
    return path


def options_of(home: Path, **more: Any) -> dict[str, Any]:
    """The options of a pool at the element; its secrets are in the folder."""
    secret = users_file(home / "client.secret", SECRET)
    tokens = {
        "issuer": f"https://{IAM}:{IAM_PORT}",
        "ca_file": AUTHORITY,
        "client_id": CLIENT,
        "client_secret_file": str(secret),
        "audience": AUDIENCE,
    }
    return {"shared": False, "export": [], "remote": REMOTE, "tokens": tokens, **more}


@contextlib.contextmanager
def element(folder: Path) -> Iterator[Element]:
    """Start one."""
    iam = folder / "iam"
    iam.mkdir()
    certificates.make(iam, (f"login.{DOMAIN}", f"ctl.{DOMAIN}", IAM))
    wanted = {
        "host": IAM,
        "port": IAM_PORT,
        "clients": {CLIENT: SECRET},
        "lifetime_s": LIFETIME_S,
        "refresh_tokens": {REFRESH: CLIENT},
    }
    (iam / "issuer.json").write_text(json.dumps(wanted))
    with running(folder / "site", kind=["--element", str(iam)]):
        site = Element(folder / "site")
        beside = site.machine("ctl")
        into = ["nsenter", "--target", str(beside.pid), "--net", "--"]
        with (iam / "log").open("wb") as log:
            site.issuer = subprocess.Popen(
                [*into, sys.executable, "-m", "tests.support.oidc", str(iam)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPO,
            )
        try:
            until(lambda: beside.listens(IAM_PORT), 60, f"the issuer: see {iam}/log")
            yield site
        finally:
            site.issuer.send_signal(signal.SIGKILL)
            site.issuer.wait()
