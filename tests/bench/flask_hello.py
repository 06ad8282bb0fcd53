"""The rival: the least that an HTTP plugin in Python can do."""

import json
from pathlib import Path

from flask import Flask, Response, request

app = Flask(__name__)
_ready: dict[str, object] = {}


@app.get("/")
def hello() -> str:
    return "hello"


@app.get("/decode")
def decode() -> Response:
    """Decode what was sent, and encode an answer that is ready: a file with JSON, read once."""
    body = json.loads(request.get_data())
    file = request.args["answer"]
    if file not in _ready:
        _ready[file] = json.loads(Path(file).read_text(encoding="utf-8"))
    answer = _ready[file]
    assert len(body) == len(answer)  # type: ignore[arg-type]
    return Response(json.dumps(answer), mimetype="application/json")
