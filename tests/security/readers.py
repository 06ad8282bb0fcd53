"""Every reader of what strangers write, each with a second way to read the same.

The second way is another parser, another format, or the same said twice: both ways have to say the
same of any bytes whatever. Errors are those that the reader promises, in one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, NamedTuple
from unittest import mock

import yaml

from kueue_nats.spec import masterqueue
from kueue_nats.spec import settings as operator_settings
from kueue_nats.spec.errors import SpecError
from plugin_server.common.errors import Malformed
from plugin_server.interlink import requests
from submitter.cli import config_file, slurm_import
from submitter.store import journal
from templates.common import json_codec
from templates.common.errors import ConfigError, PodRejected, WireError
from templates.common.yaml_loader import load_documents
from templates.job import records
from templates.job.model import File, Job
from templates.job.status import JobIdentity, accepted_status
from templates.nats import codec
from templates.pod.create_request import read_create_request
from templates.pod.model import Pod
from templates.pod.user_manifests import read_manifests
from templates.protocol import messages, publications
from templates.protocol.publications import StatusUpdate, dump_status, dump_status_update
from templates.settings.files import parse
from templates.site import file as site_file
from templates.site.build_config import BuildConfig
from tests.bench.create_request import body

DATA = Path(__file__).resolve().parents[1] / "data"
POOL = "pool-a"
UID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
JOB = Job(
    name=f"hello-{UID}",
    uid=UID,
    namespace="team-a",
    pod="hello",
    runtime="apptainer",
    script="#!/bin/bash\necho é\n\n# ---- Small tools ----\nexit\n",
    files=(File("env/main", b"A=b\n", 0o600, True), File("bin/x", b"\x00\xff", 0o755, False)),
    cpu_milli=1500,
    memory_bytes=2**40,
    gpus={"nvidia.com/gpu": 2},
    wall_time_s=3600,
    other_resources={"example.org/fpga": "1"},
    annotations={"flags": "-p gpu"},
    containers=(("setup", "init", "busybox"), ("main", "main", "r.example/x@sha256:00")),
    grace_period_s=30,
    host_paths=("/data",),
    privileged=False,
    origin="5b1c",
)
Read = Callable[[bytes], Any]


class Reader(NamedTuple):
    """A reader, its errors, and inputs that it takes."""

    name: str
    read: Read
    second: Read
    errors: tuple[type[Exception], ...]
    seeds: list[bytes]


@contextmanager
def without_orjson() -> Iterator[None]:
    """As on a login node."""
    with mock.patch.multiple(json_codec, _fast_loads=None, _fast_dumps=None):
        yield


def by_pythons_json(read: Read) -> Read:
    def second(raw: bytes) -> Any:
        with without_orjson():
            return read(raw)

    return second


def read_text(read: Callable[[str], Any]) -> Read:
    """A reader of text, which files are decoded for."""

    def of_bytes(raw: bytes) -> Any:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise ConfigError("file", "is not UTF-8") from None
        return read(text)

    return of_bytes


def recorded(what: str) -> list[bytes]:
    """Bodies of requests that interLink has sent."""
    files = sorted((DATA / "recordings").glob(f"*/{what}-*.json"))
    assert files
    return [json.dumps(json.loads(file.read_text())["body"]).encode() for file in files]


def of_pods(raw: bytes) -> list[requests.RequestedPod]:
    """As status, deletion and logs read the pods of a request."""
    decoded = requests.decode(raw)
    return [requests.read_pod(pod) for pod in (decoded if type(decoded) is list else [decoded])]


def manifests(text: str) -> Pod:
    return read_manifests([("pod.yaml", text)])


def manifests_in_json(text: str) -> Pod:
    return manifests("\n---\n".join(map(json.dumps, load_documents("pod.yaml", text))))


def status_update() -> bytes:
    identity = JobIdentity(JOB.name, UID, "team-a", "hello", JOB.containers, "5b1c")
    states = [dump_status(accepted_status(identity))]
    return dump_status_update(StatusUpdate(POOL, "i1", 2, 1, (), (JOB.name,), "7"), states)


def master_queue(raw: bytes) -> masterqueue.MasterQueue:
    try:
        return masterqueue.read(json_codec.load_json(raw))
    except (AttributeError, RecursionError, ValueError):
        raise SpecError("", "no object: the API server would not have it") from None


OPERATOR = """\
nats:
  servers: ["wss://nats.example.org:443"]
  nkey_file: /etc/interlink/kueue.nkey
poll_s: 5
"""
MASTER_QUEUE = {
    "metadata": {"name": "masterqueue", "uid": UID, "generation": 3},
    "spec": {
        "template": {"cohort": "masterqueue"},
        "drain": ["pool-b"],
        "flavors": [
            {
                "name": "sites",
                "natsFlavor": {
                    "natsSubject": "interlink.resources",
                    "virtualNode": "cpu",
                    "poolTimeout": 30,
                    "poolRegExp": "pool-(a|b)",
                },
                "nominalQuota": {"pods": 100},
                "canLendTo": [{"queue": "team", "lendingLimit": {"pods": 30}}],
            }
        ],
    },
}
SLURM_CONFIG = b"""\
SbatchPath: /opt/slurm/bin/sbatch
DataRootFolder: /shared/interlink/
SingularityDefaultOptions: [--fakeroot, --nv]
CommandPrefix: module load apptainer
Flavors:
  default: {Name: default, CPUDefault: 2, SlurmFlags: ["--partition=cpu"]}
  gpu: {Name: gpu, UID: 7, SlurmFlags: ["-p gpu", "--gres=gpu:1,shard:2", "--exclusive"]}
"""
RECORDS = b"".join(
    f"interlink1 job={JOB.name} run=1 stream={stream} n={n} at=170000000{n} {rest} ;\n".encode()
    for n, (stream, rest) in enumerate(
        (
            ("job", "state=started node=n1"),
            ("c.main", "state=waiting reason=Pulling"),
            ("c.main", "state=running restarts=0"),
            ("r.main", "ready=1"),
            ("c.main", "state=terminated exit=3 message=6e6f"),
            ("job", "state=finished exit=3"),
        )
    )
)


def message(name: str, read: Callable[[dict[str, Any]], Any], written: dict[str, Any]) -> Reader:
    def of_bytes(raw: bytes) -> Any:
        return read(codec.decode(raw))

    seeds = [codec.encode(written), codec.encode(written, compress=False)]
    return Reader(name, of_bytes, by_pythons_json(of_bytes), (WireError,), seeds)


def publication(name: str, read: Callable[[dict[str, Any], str], Any], written: bytes) -> Reader:
    def of_bytes(raw: bytes) -> Any:
        return read(codec.decode(raw), POOL)

    return Reader(name, of_bytes, by_pythons_json(of_bytes), (WireError,), [written])


def settings(name: str, read: Callable[[str], Any], *seeds: str) -> Reader:
    def second(text: str) -> Any:
        return read(yaml.safe_dump(parse(text, "file"), allow_unicode=True, sort_keys=False))

    comment = re.compile(r"^ *#.*\n|^\n", re.MULTILINE)
    written = [comment.sub("", seed).encode() for seed in seeds]
    return Reader(name, read_text(read), read_text(second), (ConfigError,), written)


def all_readers() -> list[Reader]:
    log = messages.LogRequest(JOB.name, "main", "7:1", 65536, 10, True, True, True, 100, 17)
    offer = publications.Resources(
        POOL, {"cpu": "4", "nvidia.com/gpu": "2"}, ("a=b",), ("c=d:NoSchedule",)
    )
    config = publications.write_config(POOL, BuildConfig())
    pods = [file.read_bytes() for file in sorted((DATA / "pods").glob("*.yaml"))]
    request = journal.dump_request(JOB, 17)
    queue = json.dumps(MASTER_QUEUE).encode()
    return [
        Reader(
            "create-request",
            read_create_request,
            by_pythons_json(read_create_request),
            (PodRejected,),
            [body(1), *recorded("create")],
        ),
        Reader(
            "pods-of-requests",
            of_pods,
            by_pythons_json(of_pods),
            (Malformed,),
            [*recorded("status"), *recorded("delete")],
        ),
        Reader(
            "manifests",
            read_text(manifests),
            read_text(manifests_in_json),
            (PodRejected, ConfigError),
            pods,
        ),
        message("create", messages.read_create, messages.write_create([JOB, JOB])),
        message(
            "delete", messages.read_delete, messages.write_delete(messages.Delete(JOB.name, 30))
        ),
        message("query", messages.read_query, messages.write_query(messages.Query((), "7"))),
        message("log-request", messages.read_log_request, messages.write_log_request(log)),
        publication("status-update", publications.read_status_update, status_update()),
        publication(
            "resources",
            publications.read_resources,
            codec.encode(publications.write_resources(offer)),
        ),
        publication("config", publications.read_config, codec.encode(config)),
        Reader(
            "request.json",
            journal.load_request,
            by_pythons_json(journal.load_request),
            (WireError,),
            [request],
        ),
        Reader(
            "records",
            lambda raw: records.fold(records.parse_lines(raw)),
            lambda raw: records.fold(records.parse_lines(raw + b"\n" + raw)),
            (),
            [RECORDS],
        ),
        Reader("master-queue", master_queue, by_pythons_json(master_queue), (SpecError,), [queue]),
        settings("site-file", lambda text: site_file.load(text, "site.yaml"), site_file.sample()),
        settings(
            "submitter-file",
            lambda text: config_file.load(text, "submitter.yaml"),
            config_file.sample(),
        ),
        settings(
            "operator-file",
            lambda text: operator_settings.load(text, "kueue-nats.yaml", {}),
            OPERATOR,
        ),
        settings(
            "slurm-config",
            lambda text: slurm_import.convert(text, "SlurmConfig.yaml", {}).text,
            SLURM_CONFIG.decode(),
        ),
    ]
