"""Container images of programs that are on this machine, without an engine or a registry."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.kueue_bed import REPO

SKIPPED = {"__pycache__", "site-packages", "test", "tests", "idlelib", "tkinter", "ensurepip"}
Files = dict[str, Path]  # path in the image -> file here


def archive(
    path: Path, name: str, files: Mapping[str, Path], command: list[str], **config: object
) -> Path:
    """An image of some files, in the form that "docker save" writes."""
    layer = path.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        for folder in sorted({str(above) for file in files for above in Path(file).parents}):
            entry = tarfile.TarInfo(folder.lstrip("/") or ".")
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755  # else only root may enter
            tar.addfile(entry)
        for file, source in files.items():
            entry = tarfile.TarInfo(file.lstrip("/"))
            entry.size, entry.mode = source.stat().st_size, 0o755
            with source.open("rb") as content:
                tar.addfile(entry, content)
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    described = {
        "architecture": "arm64" if platform.machine() == "aarch64" else "amd64",
        "os": "linux",
        "config": {"Entrypoint": command, **config},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        for file, value in (("manifest.json", manifest), ("config.json", described)):
            text = json.dumps(value).encode()
            entry = tarfile.TarInfo(file)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        tar.add(layer, "layer.tar")
    layer.unlink()
    return path


def libraries(programs: Iterable[Path]) -> Files:
    """What the dynamic linker wants for them."""
    found: Files = {}
    told = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
    ).stdout
    for word in re.findall(r"(?:=> |^\t)(/\S+) \(0x", told, re.MULTILINE):
        found[word] = Path(word)
    return found


def _tree(folder: Path, to: str) -> Files:
    return {
        f"{to}/{path.relative_to(folder)}": path
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix != ".a"
        and not SKIPPED & {*path.relative_to(folder).parts}
    }


def _distributions(names: Iterable[str]) -> Files:
    """What distributions have installed here, and those that they need."""
    files: Files = {}
    todo, seen = [*names], set[str]()
    while todo:
        name = re.split(r"[^\w.-]", todo.pop(), maxsplit=1)[0].lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra, or of another Python
        todo += [line for line in found.requires or () if "extra ==" not in line]
        for file in found.files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.is_file() and "__pycache__" not in file.parts:
                files[f"/site/{file}"] = source
    return files


def python_image(path: Path, name: str, module: str, needs: Iterable[str]) -> Path:
    """This Python, our own packages, what they need, and a module of ours to run."""
    here, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    python = f"/python/bin/{here.name}"
    files = {python: here, **_tree(library, f"/python/lib/{library.name}"), **_distributions(needs)}
    for package in ("templates", module):
        files.update(_tree(REPO / package, f"/site/{package}"))
    files.update(libraries([here, *(f for f in files.values() if f.suffix == ".so")]))
    environment = ["PYTHONPATH=/site", "PYTHONDONTWRITEBYTECODE=1"]
    return archive(path, name, files, [python, "-m", module], Env=environment)
