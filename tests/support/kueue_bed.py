"""The bed of scripts/bed (API server, Kueue, a node), as tests use it.

    with running("mine") as bed:
        bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        config = bed.kubeconfig_for("operator", "team")
        bed.kill("kueue")
        bed.start("kueue")
        bed.until(lambda: bed.get("job", "sum")["status"].get("succeeded"), 60, "the job's end")

A bed goes with whoever holds it: when this process ends, however it does, nothing of it is left.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, TypeVar, Union

import yaml

from tests.sites.slurm.site import SlurmSite
from tests.support.kueue_api import Api, Refused

REPO = Path(__file__).resolve().parents[2]
SCRIPT = REPO / "scripts" / "bed"
PATIENCE_S = 60.0
NEW, OLD = "0.19", "0.14"  # the versions of Kueue that there are beds with
T = TypeVar("T")
Manifest = Union[str, Mapping[str, Any]]


def until(condition: Callable[[], T], seconds: float = PATIENCE_S, what: str = "it") -> T:
    """Wait for something to become true, and return it. While kubectl is refused, it is not."""
    end = time.monotonic() + seconds
    while True:
        why: Any = None
        try:
            found = condition()
        except Refused as refused:
            why = refused
        else:
            if found:
                return found
        assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}: {why}"
        time.sleep(0.1)


class KueueBed:
    """One that is up."""

    until = staticmethod(until)

    def __init__(self, name: str, kueue: str, kubeconfig: Path) -> None:
        self.name = name
        self.kueue = kueue
        self.kubeconfig = kubeconfig  # the administrator's; it works on this machine

    # --- objects --------------------------------------------------------------------------------

    def kubectl(self, *args: str, input: Optional[str] = None, seconds: float = PATIENCE_S) -> str:
        """What kubectl says; ``Refused`` when it fails."""
        done = subprocess.run(
            [str(SCRIPT), "kubectl", "--name", self.name, "--", *args],
            input=input or "",
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        if done.returncode != 0:
            raise Refused((done.stderr or done.stdout).strip())
        return done.stdout

    def spawn(self, *args: str) -> subprocess.Popen[str]:
        """A kubectl that goes on, with its output to be read."""
        return subprocess.Popen(
            [str(SCRIPT), "kubectl", "--name", self.name, "--", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def apply(self, *manifests: Manifest) -> str:
        """Create or change objects, which come as dicts or as YAML."""
        # kubectl takes it for YAML, which does not know JSON's escapes of emoji.
        texts = [m if isinstance(m, str) else json.dumps(m, ensure_ascii=False) for m in manifests]
        return self.kubectl("apply", "-f", "-", input="\n---\n".join(texts))

    def new_namespace(self, name: str) -> None:
        """One in which pods can be made: it has its account, and Kueue's webhook knows of it."""
        self.kubectl("create", "namespace", name)
        pod = {"containers": [{"name": "c", "image": "busybox:1.36"}]}
        metadata = {"name": "none", "namespace": name}
        text = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})
        until(lambda: self.kubectl("create", "--dry-run=server", "-f", "-", input=text))

    @functools.cached_property
    def api(self) -> Api:
        """What can be read without a kubectl for it."""
        return Api(self.server, self.kubeconfig.parent / "pki")

    def get(self, kind: str, name: str = "", namespace: str = "default") -> dict[str, Any]:
        """One object (also as KIND/NAME), or a List of some, as the API server has it."""
        kind, _, same = kind.partition("/")
        return self.api.get(kind, name or same, namespace)

    @property
    def machine(self) -> int:
        """The first of all its processes."""
        lines = (self.kubeconfig.parent / "facts").read_text().splitlines()
        (number,) = (line[len("machine=") :] for line in lines if line.startswith("machine="))
        return int(number)

    # --- programs -------------------------------------------------------------------------------

    def kill(self, *programs: str) -> None:
        """End programs as SIGKILL does: etcd, apiserver, kueue, ... (``scripts/bed -h``)."""
        _script("kill", "--name", self.name, *programs)

    def stop(self, *programs: str) -> None:
        """Tell programs to end, and wait until they have."""
        _script("stop", "--name", self.name, *programs)

    def start(self, *programs: str) -> None:
        """Start programs again, and wait until they do their work."""
        _script("start", "--name", self.name, *programs)

    def load(self, archive: Path) -> None:
        """Give the node the images of an archive, as ``docker save`` writes one."""
        _script("load", "--name", self.name, str(archive))

    def ended(self) -> list[str]:
        """The programs that do not run."""
        return [words[0] for words in self._status() if words[1:] == ["ended"]]

    def memory_mb(self, program: str) -> float:
        """What a program and those that it has started have in memory."""
        (found,) = (words for words in self._status() if words[:2] == [program, "runs,"])
        return float(found[2])

    def _status(self) -> list[list[str]]:
        return [line.split() for line in _script("status", "--name", self.name).splitlines()]

    def log(self, program: str) -> str:
        """All that a program has said."""
        return _script("logs", "--name", self.name, program)

    def site(self, name: str) -> SlurmSite:
        """A site of the whole chain, at which Slurm or the login node itself runs jobs."""
        return SlurmSite(self.kubeconfig.parent / "sites" / name)

    def cluster_of(self, site: str) -> KueueBed:
        """The cluster of a site that has one; it is a bed, too."""
        name = f"{self.name}-{site}"
        return KueueBed(name, NEW, self.kubeconfig.parent.parent / name / "kubeconfig")

    # --- users ----------------------------------------------------------------------------------

    def token(self, serviceaccount: str, namespace: str = "default") -> str:
        """A real token of a ServiceAccount that exists, good for an hour."""
        return self.kubectl("create", "token", serviceaccount, "--namespace", namespace).strip()

    def kubeconfig_for(self, serviceaccount: str, namespace: str = "default") -> Path:
        """A kubeconfig with such a token, which only its owner can read and the bed takes along."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        user = {"token": self.token(serviceaccount, namespace)}
        config["users"] = [{"name": serviceaccount, "user": user}]
        context = {"cluster": config["clusters"][0]["name"], "user": serviceaccount}
        config["contexts"] = [{"name": "bed", "context": {**context, "namespace": namespace}}]
        config["current-context"] = "bed"
        path = self.kubeconfig.parent / f"{namespace}.{serviceaccount}.kubeconfig"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(config, file)
        return path

    @property
    def host(self) -> str:
        """The address under which the bed and its pods reach this machine."""
        (words,) = (words for words in self._status() if "knows" in words)
        return words[-1]

    @functools.cached_property
    def server(self) -> str:
        """The URL of the API server."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        url: str = config["clusters"][0]["cluster"]["server"]
        return url

    @property
    def authority(self) -> str:
        """The certificate of who has signed the API server's, in PEM."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        return base64.b64decode(
            config["clusters"][0]["cluster"]["certificate-authority-data"]
        ).decode()


@contextlib.contextmanager
def running(
    name: str,
    kueue: str = NEW,
    *,
    node: bool = True,
    sites: Sequence[str] = (),
    options: Sequence[str] = (),
) -> Iterator[KueueBed]:
    """A bed of this name; what it needs is built first. When it does not come up, its logs stay.

    With sites, the whole chain up to jobs there is in it. Further options are those of the script.
    BED_LOGS in the environment is a directory to keep logs in, for who looks for what has failed.
    """
    options = ["--name", name, "--kueue", kueue, "--tied", *options]
    options += [] if node else ["--without-node"]
    kind = ["--sites", ",".join(sites)] if sites else ["kueue"]
    # The bed ends with the other end of this pipe.
    reading, writing = os.pipe()
    try:
        try:
            told = _script("up", *kind, *options, stdin=reading)
        finally:
            os.close(reading)
        word = next(line for line in told.splitlines() if line.startswith("export KUBECONFIG="))
        bed = KueueBed(name, kueue, Path(word.partition("=")[2]))
        try:
            yield bed
        finally:
            _keep_logs(bed, os.environ.get("BED_LOGS"))
            _script("down", "--name", name)
    finally:
        os.close(writing)


def _keep_logs(bed: KueueBed, folder: Optional[str]) -> None:
    """Of the bed's own programs, of its sites', and of beds that are clusters of its sites."""
    if folder:
        beds = bed.kubeconfig.parent.parent
        for state in (bed.kubeconfig.parent, *beds.glob(f"{bed.name}-*/")):
            for place in (state / "log", *state.glob("sites/*/log")):
                shutil.copytree(place, Path(folder) / place.relative_to(beds), dirs_exist_ok=True)


@functools.cache
def has(name: str) -> bool:
    """Whether a part of beds has been built, such as ``kueue-0.14``."""
    return subprocess.run([str(SCRIPT), "has", name], check=False).returncode == 0


@functools.cache
def part(name: str) -> Path:
    """Where the cache keeps a part of beds, such as helm."""
    words = '. scripts/lib/common.sh && . scripts/lib/bed/parts.sh && part_folder "$1"'
    done = subprocess.run(
        ["bash", "-c", words, "bash", name], cwd=REPO, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


def _script(*words: str, stdin: int = subprocess.DEVNULL) -> str:
    """What scripts/bed puts out; it has to succeed."""
    process = subprocess.Popen(
        [str(SCRIPT), *words],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        told, complaint = process.communicate()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    assert process.returncode == 0, complaint
    return told
