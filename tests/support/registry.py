"""The registry of scripts/test-registry, as tests use it."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import uuid
from typing import Any

from tests.support.script_runner import REPOSITORY, secret

ADDRESS = "127.0.0.6"  # also called docker.io inside the site root
PRIVATE = "127.0.0.6:5443"  # the same images, for alice only
PASSWORD = "geheim $x"
_REQUEST = re.compile(
    r'"([A-Z]+) /v2/(\S+)/(manifests|blobs)/(\S+) HTTP/[0-9.]+" ([0-9]+) \S+ "" "(?!skopeo)'
)


def call(*words: str) -> str:
    """What scripts/test-registry says."""
    command = [str(REPOSITORY / "scripts" / "test-registry"), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Registry:
    """It runs while one of these is started; each worker of pytest-xdist has its own."""

    def start(self) -> None:
        call("start", str(os.getpid()))

    def stop(self) -> None:
        call("stop", str(os.getpid()))

    def new(self, image: str = "busybox", folder: str = "library") -> str:
        """A test image under a name that nothing has pulled yet, without its tag, which is 1."""
        name = f"{folder}/t{uuid.uuid4().hex[:12]}"
        self.push(image, name)
        return name

    def push(self, image: str, name: str) -> None:
        call("push", image, f"{name}:1")

    def requests(self, name: str) -> list[str]:
        """What jobs asked of it about an image and got: METHOD kind/reference."""
        found = [match.groups() for match in _REQUEST.finditer(call("log"))]
        return [
            f"{method} {kind}/{reference}"
            for method, path, kind, reference, status in found
            if path == name and method in ("GET", "HEAD") and status == "200"
        ]

    def digest(self, name: str) -> str:
        return call("digest", f"{name}:1").strip()


def login(name: str, user: str = "alice", password: str = PASSWORD) -> dict[str, Any]:
    """A Secret with a login for the private registry."""
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    document = json.dumps({"auths": {f"https://{PRIVATE}": {"auth": auth}}})
    return {
        **secret(name, stringData={".dockerconfigjson": document}),
        "type": "kubernetes.io/dockerconfigjson",
    }
