"""A job's directory as it is before its script runs: only its owner can look into it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Union

from templates.common.names import has_long_name
from templates.job.model import Job

REQUEST = "request.json"  # a submitter writes it beside the script

_LONGEST_PATH = 3072  # bytes; leaves room for the job's directory itself
_PRIVATE_FILE = 0o600
_PRIVATE_FOLDER = 0o700
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_job(job: Job, directory: Union[str, os.PathLike[str]]) -> None:
    """Make the directory, with the script and the files beside it."""
    directory = os.fspath(directory)
    os.makedirs(directory, _PRIVATE_FOLDER)
    write_file(f"{directory}/job.sh", job.script.encode(), 0o700)
    made = {""}
    for file in job.files:
        _make_folders(directory, file.path.rpartition("/")[0], made)
        write_file(f"{directory}/{file.path}", file.content, file.mode)


def find_path_conflict(paths: Iterable[str]) -> str:
    """Return why a job's files cannot all be written at their paths; empty if they can."""
    files, folders = {"job.sh", REQUEST}, {""}
    for path in paths:
        above = path.split("/")[:-1]
        if path in files or path in folders:
            return f"two are named {path!r}"
        if has_long_name(path) or len(path.encode()) > _LONGEST_PATH:
            return "a name is too long"
        files.add(path)
        for depth in range(1, len(above) + 1):
            folder = "/".join(above[:depth])
            if folder in files:
                return f"{folder!r} is a file and a folder"
            folders.add(folder)
    return ""


def write_file(path: str, content: bytes, mode: int = _PRIVATE_FILE) -> None:
    """Write a new file of exactly this mode, whatever the umask."""
    descriptor = os.open(path, _NEW, _PRIVATE_FILE)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if mode != _PRIVATE_FILE:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _make_folders(directory: str, folder: str, made: set[str]) -> None:
    """Make private folders; those that containers see are readable by every user they run as."""
    if folder in made:
        return
    _make_folders(directory, folder.rpartition("/")[0], made)
    os.mkdir(f"{directory}/{folder}", _PRIVATE_FOLDER)
    if "volumes" in folder.split("/")[:-1]:  # a volume, or a folder in one
        os.chmod(f"{directory}/{folder}", 0o755)  # noqa: S103
    made.add(folder)
