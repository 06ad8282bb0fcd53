"""What a container of the hostile pods runs: it tells what has reached it, as one Python literal.

    dumper.py SPEC ARGUMENT...

SPEC is hexadecimal JSON: the paths to list, the file to write the answer to (else stdout), a file
to wait for, and the termination message with its path. It runs in the container, so it imports
nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import time

ROOT = "."  # the entry of a path that is itself a file


def words(name: str) -> list[bytes]:
    """The words that the kernel keeps for this process, to the byte."""
    with open(f"/proc/self/{name}", "rb") as file:
        return file.read().split(b"\0")[:-1]


def tree(path: bytes) -> dict[bytes, bytes | None]:
    """The files below a path with their content, the folders with None."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            return {ROOT.encode(): file.read()}
    found: dict[bytes, bytes | None] = {}
    for folder, folders, files in os.walk(path):
        for name in folders:
            found[os.path.relpath(os.path.join(folder, name), path)] = None
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.relpath(os.path.join(folder, name), path)] = file.read()
    return found


def main() -> None:
    arguments = words("cmdline")
    position = arguments.index(os.fsencode(__file__)) + 1
    spec = json.loads(bytes.fromhex(arguments[position].decode()))
    told = {
        "args": arguments[position + 1 :],
        "env": words("environ"),
        "cwd": os.getcwdb(),
        "stdin": sys.stdin.read(),
        "trees": {path: tree(path.encode()) for path in spec.get("trees", ())},
    }
    if "message" in spec:
        with open(spec["message_path"], "w", encoding="utf-8", newline="") as file:
            file.write(spec["message"])
    if "answer" in spec:
        with open(spec["answer"] + ".part", "w", encoding="utf-8") as file:
            file.write(repr(told))
        os.rename(spec["answer"] + ".part", spec["answer"])
    else:
        sys.stdout.write(repr(told))
        sys.stdout.flush()
    while "wait" in spec and not os.path.exists(spec["wait"]):
        time.sleep(0.01)


main()
