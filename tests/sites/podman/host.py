"""A podman host of scripts/podman-host, as tests use it.

    with running(folder) as host:
        host.run("podman", "ps")

It ends with whoever holds it: its input is a pipe of this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from templates.job.model import Job
from templates.pod.user_manifests import read_manifests
from templates.site.build_config import (
    BuildConfig,
    HostPath,
    Images,
    PodmanRuntime,
    Runtime,
    Volumes,
)
from templates.translation.build import build
from tests.support.nats_server import NatsServer
from tests.unit.submitter.rig import Submitter, manifest_of

REPO = Path(__file__).resolve().parents[3]
SCRIPT = REPO / "scripts" / "podman-host"
ALICE = 1000
BASH = "docker.io/tests/bash:1"  # an image with bash and busybox, made on each host

# Bash and what it links against, beside the user land of busybox.
MAKE_IMAGE = r"""
set -e
tree=$(mktemp -d)
cd "$tree"
mkdir -p bin dev etc proc root sys tmp var/tmp
cp /bin/busybox bin/
for name in $(busybox --list); do [ "$name" = busybox ] || ln -s busybox "bin/$name"; done
for file in /bin/bash $(ldd /bin/bash | grep -o '/[^ ]*'); do
    mkdir -p ".${file%/*}"
    rm -f ".$file"
    cp -L "$file" ".$file"
done
echo root:x:0:0:root:/root:/bin/sh >etc/passwd
tar -cf - . | podman import -q - "$1"
rm -rf "$tree"
"""


class PodmanHost:
    """One that is up; what it runs, it runs as alice."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *words: str) -> list[str]:
        return [str(SCRIPT), "run", str(self.folder), *words]

    def python(self, *words: str) -> list[str]:
        return [str(SCRIPT), "python", str(self.folder), *words]

    def try_to(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def run(self, *words: str) -> str:
        """What a command says; it has to succeed."""
        done = self.try_to(*words)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def containers(self, folder: Path) -> list[str]:
        """Containers and pods, in any state, of jobs whose directory is below a folder."""
        label = '{{index .Labels "interlink.directory"}}'
        found = []
        for listed in (("ps", "--all", "--no-trunc"), ("pod", "ps", "--no-trunc")):
            said = self.run("podman", *listed, "--format", "{{.ID}} " + label)
            pairs = [line.partition(" ") for line in said.splitlines()]
            found += [one for one, _, place in pairs if place.startswith(str(folder))]
        return found

    def own(self, *paths: Path) -> None:
        """Give folders, and all that is in them, to alice."""
        for path in paths:
            for one in (path, *path.rglob("*")):
                os.chown(one, ALICE, ALICE, follow_symlinks=False)


class AtTheHost(Submitter):
    """A submitter on the host, as its user."""

    def __init__(self, nats: NatsServer, folder: Path, host: PodmanHost, **pool: object) -> None:
        given = {"backend": "podman", "build": BUILD, **pool}
        super().__init__(nats, folder, **given)
        self.host = host
        os.chown(self.config, ALICE, ALICE)

    def start(self) -> AtTheHost:
        command = self.host.python("-m", "submitter", "--config", str(self.config))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self


@contextlib.contextmanager
def running(folder: Path, *name: str) -> Iterator[PodmanHost]:
    """A host of that name that sees this folder, and has the image with bash."""
    with subprocess.Popen(
        [str(SCRIPT), "up", str(folder), *name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            host = PodmanHost(folder)
            host.run("sh", "-c", MAKE_IMAGE, "sh", BASH)
            yield host
        finally:
            process.stdin.close()
            process.wait(60)


# --- jobs -----------------------------------------------------------------------------------------

WITNESS = "/var/tmp"  # where tests look at what jobs do; the same in every container
BUILD = {
    "runtime": {"name": "podman", "options": [f"--volume={WITNESS}:{WITNESS}"]},
    "podman": {"network": "pasta"},
}
CONFIG = BuildConfig(
    runtime=Runtime("podman", options=(f"--volume={WITNESS}:{WITNESS}",)),
    podman=PodmanRuntime("pasta"),
    images=Images(pull_attempts=1),
    volumes=Volumes(host_paths=(HostPath(WITNESS),)),
)


def job_of(
    script: str = "exit 0",
    name: str = "job",
    uid: str = "",
    grace: int = 3,
    config: BuildConfig = CONFIG,
    **spec: object,
) -> Job:
    """As the job of tests/unit/submitter/rig.py, in a container."""
    manifest = json.loads(manifest_of(script, name, uid, grace, **spec))
    _with_image(manifest["spec"].get("initContainers", ()))
    _with_image(manifest["spec"]["containers"])
    return build(read_manifests([("pod.json", json.dumps(manifest))]), config)


def _with_image(containers: Sequence[dict[str, object]]) -> None:
    for container in containers:
        if container.get("image", "none") == "none":
            container["image"] = BASH
        container.setdefault("imagePullPolicy", "IfNotPresent")
