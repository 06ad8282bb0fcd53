"""Who may import whom, and who may touch the outside world: read off the syntax trees."""

from __future__ import annotations

import ast
import configparser
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

REPO = Path(__file__).resolve().parent.parent

# What each package may import besides the standard library and itself.
ALLOWED = {
    "templates": {"jinja2", "marshmallow", "yaml", "tomli"},
    "submitter": {"templates", "yaml", "marshmallow"},
    "plugin_server": {
        "templates",
        "flask",
        "gunicorn",
        "redis",
        "marshmallow",
        "prometheus_client",
    },
    "kueue_nats": {"templates", "yaml", "prometheus_client"},
}
# The connection to NATS that all programs share: the only part of templates that reaches outside.
CONNECTION = {
    "templates/asking.py",
    "templates/connecting.py",
    "templates/link.py",
    "templates/link_settings.py",
    "templates/parts.py",
}
# What single modules may import besides that.
EXTRA = {
    "kueue_nats/cluster.py": {"kubernetes", "urllib3"},
    "submitter/backends/kubernetes_api.py": {"kubernetes", "urllib3"},
    "submitter/issuer.py": {"requests"},
    "templates/json_text.py": {"orjson"},
    "templates/nats_site.py": {"nkeys"},
    **{module: {"nats"} for module in CONNECTION},
}

# Standard modules that reach outside the process, and the modules that may use them. A pattern
# ending in a slash is a folder.
WORLD = {
    "subprocess": {"submitter/command.py", "templates/render_pod.py"},
    "pickle": set(),
    "marshal": set(),
    "shelve": set(),
}
READS_ENVIRONMENT = {"settings.py", "render_pod.py"}  # by file name, in any package

# Everything in templates is a function of its arguments but its command lines, its connection, the
# one module that writes, and the one that runs a program.
IMPURE = {
    "asyncio",
    "glob",
    "http",
    "io",
    "logging",
    "os",
    "pathlib",
    "random",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
}
COMMAND_LINES = {"templates/nats_site.py", "templates/render_pod.py"}
WRITES = {"templates/job_directory.py"}  # what both the command line and submitters need
# What the mains of programs share (the log, signals, the exit), and what else logs by itself.
MAINS = {"templates/recurring_error.py", "templates/running.py"}
# Parts of those that only compute.
HARMLESS = {
    "logging.Formatter",
    "logging.LogRecord",
    "urllib.parse",
    "pathlib.PurePath",
    "pathlib.PurePosixPath",
    "os.path",
}


class Import(NamedTuple):
    """One imported name, in full: ``from a.b import c`` is ``a.b.c``."""

    where: str
    name: str

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


def packages() -> list[str]:
    cfg = configparser.RawConfigParser()
    cfg.read(REPO / "setup.cfg")
    return cfg["options"]["packages"].split()


def modules() -> list[Path]:
    tops = sorted({name.partition(".")[0] for name in packages()})
    return [path for top in tops for path in sorted((REPO / top).rglob("*.py"))]


def label(path: Path) -> str:
    return path.relative_to(REPO).as_posix()


@functools.cache
def imports(path: Path) -> tuple[Import, ...]:
    return tuple(found_imports(path))


def found_imports(path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{label(path)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (Import(where, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (Import(where, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(where, label(path).partition("/")[0])


every_module = pytest.mark.parametrize("path", modules(), ids=label)


def test_every_package_has_a_rule() -> None:
    assert {name.partition(".")[0] for name in packages()} <= ALLOWED.keys()


@every_module
def test_a_module_imports_only_what_its_package_may(path: Path) -> None:
    package = label(path).partition("/")[0]
    fine = ALLOWED[package] | EXTRA.get(label(path), set()) | {package, "__future__"}
    # tomllib is younger than the oldest Python that may run this test.
    fine |= sys.stdlib_module_names | {"tomllib"}
    assert [imp for imp in imports(path) if imp.top not in fine] == []


@every_module
def test_imports_are_absolute(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    relative = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level]
    assert relative == []


@every_module
def test_only_the_modules_named_here_reach_outside(path: Path) -> None:
    guarded = [imp for imp in imports(path) if imp.top in WORLD]
    assert [imp for imp in guarded if label(path) not in WORLD[imp.top]] == []


@every_module
def test_the_environment_is_read_in_settings_only(path: Path) -> None:
    if path.name in READS_ENVIRONMENT:
        return
    names = {"environ", "environb", "getenv"}
    text = path.read_text(encoding="utf-8")
    if not any(name in text for name in names):
        return
    used = [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr in names
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]
    used += [0 for imp in imports(path) if imp.top == "os" and imp.name[3:] in names]
    assert used == []


def is_harmless(name: str) -> bool:
    return any(name == fine or name.startswith(fine + ".") for fine in HARMLESS)


@every_module
def test_templates_is_pure(path: Path) -> None:
    if (
        not label(path).startswith("templates/")
        or label(path) in COMMAND_LINES | CONNECTION | WRITES | MAINS
    ):
        return
    found = [imp for imp in imports(path) if imp.top in IMPURE and not is_harmless(imp.name)]
    assert found == []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
    named = {call.id for call in calls if isinstance(call, ast.Name)}
    assert named & {"open", "input", "print", "exec", "eval", "__import__"} == set()
    # The clock, by way of datetime.
    clock = {call.attr for call in calls if isinstance(call, ast.Attribute)}
    assert clock & {"now", "utcnow", "today"} == set()
