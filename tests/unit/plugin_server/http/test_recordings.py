"""The plugin under a real gunicorn, spoken to as a real interLink did."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib.bed.recorder import recorder
from templates.site.build_config import BuildConfig, Claim, HostPath, Runtime, Volumes
from tests.support.nats_server import NatsServer
from tests.unit.plugin_server.conftest import until
from tests.unit.plugin_server.gunicorn import Gunicorn
from tests.unit.plugin_server.pod_builders import job_of, status
from tests.unit.plugin_server.site import Site

RECORDINGS = Path(__file__).parents[3] / "data" / "recordings"
FILES = sorted(RECORDINGS.glob("*/*.json"))
CONFIG = BuildConfig(
    runtime=Runtime(name="apptainer"),
    volumes=Volumes(
        host_paths=(HostPath("/data"),), claims={"data": Claim("/srv/$namespace/$claim")}
    ),
)
UID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{8})[0-9a-f]{4}")
POOLS = ("slurm-a", "pool-a")  # that the recorded pods name


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NatsServer, Site]]:
    """A nats-server of their own: these pools are those of other tests, too."""
    server = NatsServer(tmp_path_factory.mktemp("recorded")).start()
    found = [Site(server.url, pool) for pool in POOLS]
    for site in found:
        site.config = CONFIG
        site.start()
    yield server, found[0]
    for site in found:
        site.stop()
    server.stop()


@pytest.fixture(scope="module")
def gunicorn(
    sites: tuple[NatsServer, Site], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gunicorn]:
    folder = tmp_path_factory.mktemp("plugin")
    with Gunicorn(folder, sites[0], default_pool=POOLS[0]) as found:
        until(lambda: b"resources" in found.call("GET", "/status", [])[1])
        yield found
    assert "Traceback" not in found.log()


def recording(version: str, name: str) -> Any:
    return json.loads((RECORDINGS / version / f"{name}.json").read_text())["body"]


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


# --- what interLink really sent -------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_recorded_request_is_answered(gunicorn: Gunicorn, path: Path) -> None:
    recorded = json.loads(path.read_text())
    connection = gunicorn.connect()
    headers = {k: v for k, v in recorded["headers"].items() if k != "Content-Length"}
    connection.request(recorded["method"], recorded["path"], json.dumps(recorded["body"]), headers)
    answer = connection.getresponse()
    follows = recorded["path"] == "/getLogs" and recorded["body"]["Opts"]["Follow"]
    body = "" if follows else answer.read().decode()
    connection.close()
    if recorded["path"] == "/getLogs":
        assert answer.status in (200, 404), body  # 404: the pod of another day
    elif recorded["path"] == "/create" and "ephemeral" in path.stem:
        assert answer.status == 400, body  # what no batch site can give
    else:
        assert answer.status == 200, body
    if answer.status != 200 and not follows:
        assert body.count("\n") == 1
        return
    check_answer(recorded["path"], recorded["body"], body)


def check_answer(path: str, asked: Any, body: str) -> None:
    """An answer 200 has the form that interLink can read, and lists all that was asked for."""
    if path == "/create":
        uid = asked["pod"]["metadata"]["uid"]
        assert json.loads(body) == {"PodUID": uid, "PodJID": job_of(asked["pod"])}
    elif path == "/delete":
        assert body == "deleted"
    elif path == "/status" and not asked:
        resources = json.loads(body)["resources"]
        assert all(type(resources[kind]) is str for kind in ("cpu", "memory", "pods"))
    elif path == "/status":
        for pod, told in zip(asked, json.loads(body)):
            assert (told["UID"], told["name"]) == tuple(pod["metadata"][k] for k in ("uid", "name"))
            names = [container["name"] for container in pod["spec"]["containers"]]
            assert sorted(told["name"] for told in told["containers"]) == sorted(names)


@pytest.mark.parametrize("version", ["0.6.2", "0.5.2-pre2"])
def test_what_is_recorded_is_what_was_sent(
    gunicorn: Gunicorn, tmp_path: Path, version: str
) -> None:
    """Recordings are played through the recorder of scripts/bed, which keeps the same ones."""
    server = recorder(tmp_path, 0, gunicorn.port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # Pods of their own: those of the recordings may be created, and be deleted, by tests above.
    texts = [path.read_text() for path in FILES if path.parent.name == version]
    played = [json.loads(UID.sub(r"\1cafe", text)) for text in texts]
    try:
        for recorded in played:
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
            body = json.dumps(recorded["body"])
            headers = {**recorded["headers"], "Content-Length": str(len(body))}
            connection.request(recorded["method"], recorded["path"], body, headers)
            answer = connection.getresponse()
            assert answer.status in (200, 400, 404), answer.read()
            connection.close()
    finally:
        server.shutdown()
        server.server_close()
    kept = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert contents(kept) == contents(played)


def contents(recordings: Iterable[Any]) -> list[str]:
    """Without what depends on how JSON is spelled."""
    for recorded in recordings:
        del recorded["headers"]["Content-Length"]
    return sorted(json.dumps(recorded, sort_keys=True) for recorded in recordings)


@pytest.mark.parametrize("version", ["0.6.2", "0.5.2-pre2"])
def test_a_recorded_pod_lives_from_create_to_delete(
    gunicorn: Gunicorn, sites: tuple[NatsServer, Site], version: str
) -> None:
    create = recording(version, "create-plain")
    # Another one of its kind: the recording itself may have been deleted by a test above.
    texts = json.dumps([create, recording(version, "status-plain-running")])
    uid = create["pod"]["metadata"]["uid"]
    create, asked = json.loads(texts.replace(uid, uid[:-4] + "beef"))
    raw = create["pod"]
    code, answer = gunicorn.call("POST", "/create", create)
    assert (code, json.loads(answer)["PodJID"]) == (200, job_of(raw))
    site = sites[1]
    site.say(status(raw, "queued", message="Priority"))
    code, answer = gunicorn.call("GET", "/status", asked)
    assert (code, json.loads(answer)[0]["UID"]) == (200, raw["metadata"]["uid"])
    assert gunicorn.call("POST", "/delete", raw) == (200, b"deleted")
    until(lambda: job_of(raw) in [delete.name for delete in site.deleted])
