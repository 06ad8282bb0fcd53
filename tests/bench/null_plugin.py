"""A plugin that does nothing but say "done after 30 s": what interLink itself takes, for ``chain``.

It is run by gunicorn where ours would listen.
"""

from __future__ import annotations

import time
from typing import Any

from flask import Flask, Response, jsonify, request

SECONDS = 30.0
app = Flask(__name__)
born: dict[str, float] = {}  # uid -> when its create came


@app.post("/create")
def create() -> Response:
    uid = request.get_json(force=True)["pod"]["metadata"]["uid"]
    born.setdefault(uid, time.time())
    return jsonify({"PodUID": uid, "PodJID": f"null-{uid}"})


@app.get("/status")
def status() -> Response:
    pods = request.get_json(force=True)
    if not pods:
        return jsonify({"status": "ok"})
    return jsonify([_status(pod) for pod in pods if pod["metadata"]["uid"] in born])


def _status(pod: dict[str, Any]) -> dict[str, Any]:
    metadata = pod["metadata"]
    start = born[metadata["uid"]]
    end = start + SECONDS
    state: dict[str, Any] = {"running": {"startedAt": _stamp(start)}}
    if time.time() >= end:
        ended = {"exitCode": 0, "startedAt": _stamp(start), "finishedAt": _stamp(end)}
        state = {"terminated": ended}
    containers = [
        {"name": c["name"], "image": c["image"], "imageID": "", "restartCount": 0, "state": state}
        for c in pod["spec"]["containers"]
    ]
    return {
        "name": metadata["name"],
        "UID": metadata["uid"],
        "namespace": metadata["namespace"],
        "JID": f"null-{metadata['uid']}",
        "containers": containers,
        "initContainers": [],
    }


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


@app.post("/delete")
def delete() -> Response:
    born.pop(request.get_json(force=True)["metadata"]["uid"], None)
    return Response("deleted")
