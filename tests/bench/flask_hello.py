"""The rival of ``translate``: the least that an HTTP plugin in Python can do."""

from flask import Flask

app = Flask(__name__)


@app.get("/")
def hello() -> str:
    return "hello"
