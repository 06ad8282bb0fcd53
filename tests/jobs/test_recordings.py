"""Create requests as interLink has really sent them, in two of its versions."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from templates.common.errors import PodRejected
from templates.pod.create_request import read_create_request
from templates.site.build_config import (
    RUNTIMES,
    BuildConfig,
    Claim,
    HostPath,
    NfsExport,
    Runtime,
    Volumes,
)
from templates.translation.build import build
from tests.jobs.web import web_server
from tests.support.script_runner import BUSYBOX, ENTRY, REPOSITORY, Site

FOLDER = REPOSITORY / "tests" / "data" / "recordings"
RECORDINGS = sorted(FOLDER.glob("*/create-*.json"))
VOLUMES = Volumes(
    host_paths=(HostPath("/data"),),
    claims={"data": Claim("/srv/$namespace/$claim")},
    nfs=(NfsExport("nfs.example.org", "/x", "/net/x"),),
)
# What becomes of each recording: at a site that allows nothing, at one that gives its volumes a
# place, and at such a one without images. Empty: it translates.
NO_CLAIM = (
    "pod.spec.volumes[d].persistentVolumeClaim: "
    "this site has no place for the claim rec/data (volumes.claims)"
)
NO_PATH = (
    "pod.spec.volumes[host].hostPath.path: /data/foo is not allowed at this site (allowed: none)"
)
NO_NFS = "pod.spec.volumes[d].nfs: this site has no place for nfs.example.org:/x (volumes.nfs)"
NO_COMMAND = "pod.spec containers[{}].command: must be given: the host runtime has no images"
OUTCOMES = {
    "create-plain": ("", "", ""),
    "create-sample-job": ("", "", ""),
    "create-claim": (NO_CLAIM, "", NO_COMMAND.format("c")),
    "create-everything": (NO_PATH, "", NO_COMMAND.format("helper")),
    "create-generic-ephemeral": (NO_NFS, "", NO_COMMAND.format("c")),
}

PASSWORD = "p'a\"s$s`w\\ord\n"
PLAIN = "a 'b' \"c\" $D `e`"
SETTINGS = {"a.yaml": "k: v\nl: 'w'\n", "mode": "fast", "odd.key-name": "x y"}
ACCOUNT = {
    "ca.crt": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    "namespace": "rec",
    "token": "HEADER.PAYLOAD.SIGNATURE",
}
ENVIRONMENT = {
    "PLAIN": PLAIN,
    "EMPTY": "",
    "MULTI": "x\ny\n",
    "REF": f"{PLAIN}-$(NOPE)-$(PLAIN)",
    "odd.name-x": "1",
    "MODE": "fast",
    "PASSWORD": PASSWORD,
    "POD_NAME": "everything",
    "NODE": "interlink",
    "LABEL": "rec",
    **{f"S_{key}": value for key, value in SETTINGS.items()},
    "user": "ann",
    "password": PASSWORD,
    "HOSTNAME": "everything",
}
# What is mounted, as Kubernetes shows it, under the name of the folder that main copies it to.
CONTENTS = {
    "app": {"conf/a.yaml": SETTINGS["a.yaml"], "mode": "fast"},
    "sec": {"password": PASSWORD, "user": "ann"},
    "proj": {**SETTINGS, "blob.bin": "\0\1\2\3\4\xff", "who/user": "ann", "name": "everything"},
    "down": {"labels": 'app="rec"\ntier="1"', "cpu": "2"},
    "serviceaccount": ACCOUNT,
}
CONTENTS["proj"]["token"] = ACCOUNT["token"]
MODES = {"app/conf/a.yaml": "400", "app/mode": "644", "sec/user": "400", "down/labels": "644"}

# In the place of Python: says what has arrived, and waits until the test has seen it ($$$$ is $$).
MAIN = r"""
cat /proc/$$$$/environ >/work/environ
pwd >/work/pwd
account=/var/run/secrets/kubernetes.io/serviceaccount
for folder in /etc/app /etc/sec /etc/proj /etc/down "$account"; do
    mkdir -p "/work/copy/${folder##*/}"
    (cd "$folder" && find . -type f | while read -r file; do
        mkdir -p "/work/copy/${folder##*/}/${file%/*}"
        cat "$file" >"/work/copy/${folder##*/}/$file"
        echo "${folder##*/}/${file#./} $(stat -L -c %a "$file")" >>/work/modes
    done)
done
[ -d /etc/one.yaml ] && echo one.yaml is a folder >>/work/notes
touch /data/x 2>/dev/null || echo data is read-only >>/work/notes
touch /dev/shm/x && echo memory is writable >>/work/notes
grep '10.1.2.3.*db.local' /etc/hosts >>/work/notes
: >/work/ready
until [ -e /work/go ]; do sleep 0.05; done
echo "$MODE"
exit 3
"""


def body_of(path: Path) -> dict[str, Any]:
    body = json.loads(path.read_text(encoding="utf-8"))["body"]
    first: dict[str, Any] = body[0] if isinstance(body, list) else body
    return first


def label(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def test_the_outcome_of_every_recording_is_known() -> None:
    assert {path.stem for path in RECORDINGS} == set(OUTCOMES)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("path", RECORDINGS, ids=label)
def test_a_recorded_request_translates_or_is_refused_in_one_line(path: Path, runtime: str) -> None:
    bare, given, without_images = OUTCOMES[path.stem]
    assert outcome(path, runtime, Volumes()) == bare
    assert outcome(path, runtime, VOLUMES) == (without_images if runtime == "host" else given)


def outcome(path: Path, runtime: str, volumes: Volumes) -> str:
    """The words of the refusal; empty when it translates, to what the request says."""
    config = BuildConfig(runtime=Runtime(name=runtime), volumes=volumes)
    request = json.dumps(json.loads(path.read_text(encoding="utf-8"))["body"]).encode()
    body = body_of(path)
    try:
        job = build(read_create_request(request), config)
    except PodRejected as refusal:
        return str(refusal)
    spec = body["pod"]["spec"]
    named = [c["name"] for key in ("initContainers", "containers") for c in spec.get(key, ())]
    assert [name for name, _, _ in job.containers] == named
    assert job.name.endswith(body["pod"]["metadata"]["uid"])
    return ""


def adapted(path: Path, runtime: str, data: Path, port: int) -> bytes:
    """The request with what this machine cannot give replaced, and nothing else.

    The images come from registries: main gets busybox, and as that has no Python, another command;
    helper an image with an entrypoint (without images: that entrypoint). The path and the port of
    the machine are ones that are free here, and probes may take as long as a loaded machine needs.
    """
    body = copy.deepcopy(body_of(path))
    main, helper = body["pod"]["spec"]["containers"]
    main.update(image=BUSYBOX, command=["sh", "-c"], args=[MAIN])
    helper.update(image=ENTRY, imagePullPolicy="IfNotPresent")
    if runtime == "host":
        helper["command"] = ["/bin/echo", "entry-point"]
    main["ports"][0]["containerPort"] = port
    main["readinessProbe"]["tcpSocket"]["port"] = port
    for container in (*body["pod"]["spec"]["initContainers"], main):
        for kind in {"startupProbe", "livenessProbe", "readinessProbe"} & container.keys():
            container[kind]["timeoutSeconds"] = 60
    (volume,) = (v for v in body["pod"]["spec"]["volumes"] if "hostPath" in v)
    volume["hostPath"]["path"] = str(data / "foo")
    return json.dumps(body).encode()


@pytest.mark.parametrize("version", ["0.5.2-pre2", "0.6.2"])
def test_the_recorded_pod_with_everything_runs(site: Site, version: str) -> None:
    path = FOLDER / version / "create-everything.json"
    data, memory = site.folder / "data", site.folder / "memory"
    for folder in (data, memory):
        folder.mkdir()
        folder.chmod(0o1777)
    # The machine's /dev/shm is shared by the tests that run this pod at the same time.
    volumes = Volumes(host_paths=(HostPath(str(data)),), memory=str(memory))
    config = replace(site.config, volumes=volumes)
    config = replace(config, runtime=replace(config.runtime, gpu="never"))  # there are none here
    with web_server() as web:
        running = site.start(
            read_create_request(adapted(path, site.runtime, data, web.port)), config
        )
        work = running.directory / "scratch" / "work"
        try:
            running.until(lambda _: (work / "ready").exists())
            state = running.until(
                lambda state: "main" in state.containers and state.containers["main"].ready
            )
            assert state.containers["main"].begun
            assert state.containers["sidecar"].begun
            check_what_arrived(work, site)
        finally:
            work.mkdir(parents=True, exist_ok=True)
            (work / "go").touch()
            done = running.wait()
    assert all(request.startswith(b"GET /live HTTP/1.1\r\n") for request in web.requests)
    ends = done.ends()
    assert {name: ends[name] for name in ("first", "second", "helper", "main")} == {
        "first": 0,
        "second": 0,
        "helper": 0,
        "main": 3,
    }
    assert "sidecar" in ends
    assert done.code == 3
    assert (done.log("second"), done.log("main")) == ("one\n", "fast\n")
    assert done.log("helper") == "entry-point --serve\n"
    end = done.state.containers["main"].end
    assert end is not None
    assert end.message == "fast\n"  # FallbackToLogsOnError
    assert (data / "foo").is_dir()
    assert not (data / "foo" / "x").exists()


def check_what_arrived(work: Path, site: Site) -> None:
    entries = (work / "environ").read_bytes().split(b"\0")[:-1]
    env = dict(entry.decode().split("=", 1) for entry in entries)
    assert {name: env.get(name) for name in ENVIRONMENT} == ENVIRONMENT
    assert (work / "pwd").read_text() == "/work\n"
    for folder, files in CONTENTS.items():
        copied = work / "copy" / folder
        found = {
            str(file.relative_to(copied)): file.read_bytes()
            for file in copied.rglob("*")
            if file.is_file()
        }
        assert found == {name: text.encode("latin-1") for name, text in files.items()}, folder
    modes = dict(line.split() for line in (work / "modes").read_text().splitlines())
    expected = dict(MODES)
    if site.runtime == "podman":  # the pod runs as user 1000, who reads by the group
        expected = {name: mode.replace("400", "440") for name, mode in MODES.items()}
    assert {name: modes[name] for name in MODES} == expected
    notes = (work / "notes").read_text().splitlines()
    assert notes[:3] == ["one.yaml is a folder", "data is read-only", "memory is writable"]
    assert "db.local" in notes[3]
    assert (work / "helper").is_dir()  # the subPathExpr of helper
    assert (work / "one").read_text() == "one\n"
