"""The rooms: which folders there are, who stands on whom, and what each may touch.

A room is a folder of modules. ``ROOMS`` has them from low to high. What a room lives for, and what
of the world it may touch, is said in the docstring of its ``__init__.py`` and nowhere else: the
last line of it begins with "Touches:".
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest

from tests.house.rooms import HOMONYMS, MOST_MODULES, ROOMS
from tests.support.sources import REPO, Source, packages, sources

Rooms = Mapping[str, Sequence[Sequence[str]]]
Sources = Sequence[Source]


# --- where a module stands ------------------------------------------------------------------------


class Place(NamedTuple):
    """A room, and how high it is in its package."""

    name: str
    rank: int


class Plan:
    """The rooms of all packages: folders that end in a slash."""

    def __init__(self, rooms: Rooms, modules: Sources) -> None:
        folders = sorted({folder_of(source.label) for source in modules})
        self.places: dict[str, Place] = {}
        for package, ranks in rooms.items():
            entries = [entry for rank in ranks for entry in rank]
            named = {room(package, entry) for entry in entries if not entry.endswith("/*")}
            others = [folder for folder in folders if folder not in named]
            for height, rank in enumerate(ranks):
                for entry in rank:
                    found = [room(package, entry)]
                    if entry.endswith("/*"):
                        above = room(package, entry.removesuffix("/*"))
                        found = [one for one in others if folder_of(one[:-1]) == above]
                    self.places.update((name, Place(name, height)) for name in found)
        self._labels = {dotted(source.label): source.label for source in modules}

    def place(self, label: str) -> Place | None:
        """Return the room of a module, None if it has none."""
        return self.places.get(folder_of(label))

    def label(self, name: str) -> str | None:
        """Return the module that a dotted name lies in, None if it is not ours."""
        while name and name not in self._labels:
            name = name.rpartition(".")[0]
        return self._labels.get(name)


def room(package: str, entry: str) -> str:
    return f"{package}/{entry}/".replace("//", "/")


def folder_of(label: str) -> str:
    return label.rpartition("/")[0] + "/"


def dotted(label: str) -> str:
    return label.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def has_code(source: Source) -> bool:
    """Return whether it is more than the docstring of its folder."""
    return source.name != "__init__.py"


# --- the rules ------------------------------------------------------------------------------------


def homeless(modules: Sources, rooms: Rooms) -> list[str]:
    """Return modules of no room, and rooms of no module."""
    plan = Plan(rooms, modules)
    ours = [source for source in modules if has_code(source)]
    placed = {place.name for source in ours if (place := plan.place(source.label))}
    found = [f"{source.label} is in no room" for source in ours if not plan.place(source.label)]
    return found + [f"{name} has no module" for name in plan.places.keys() - placed]


def steps_up(modules: Sources, rooms: Rooms) -> list[str]:
    """Return imports of what stands higher, or beside: an order of rooms has no cycles."""
    plan = Plan(rooms, modules)
    found = []
    for source in modules:
        here = plan.place(source.label)
        for imp in source.imports:
            label = plan.label(imp.name)
            if not label or label.partition("/")[0] != source.package:
                continue
            there = plan.place(label)
            if here and there and here != there and here.rank <= there.rank:
                found.append(f"{source.label} imports {imp.name}")
    return found


def cycles(modules: Sources) -> list[str]:
    """Return folders below a package that reach each other, whatever order they are given."""
    plan = Plan({}, modules)
    graph: dict[str, set[str]] = defaultdict(set)
    for source in modules:
        for imp in source.imports:
            folders = [folder_of(source.label), folder_of(plan.label(imp.name) or "")]
            if folders[0] != folders[1] and all(folder.count("/") > 1 for folder in folders):
                graph[folders[0]].add(folders[1])
    reached = {folder: set(reachable(graph, folder)) for folder in [*graph]}
    return sorted(
        f"{one} and {other} import each other"
        for one in reached
        for other in reached[one]
        if one < other and one in reached.get(other, ())
    )


def reachable(graph: Mapping[str, set[str]], start: str) -> Iterator[str]:
    seen: set[str] = set()
    waiting = [*graph.get(start, ())]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            waiting += graph.get(node, ())


def crowds(modules: Sources, most: int = MOST_MODULES) -> list[str]:
    """Return folders with more modules than one takes in at a glance."""
    counts: dict[str, int] = defaultdict(int)
    for source in modules:
        counts[folder_of(source.label)] += source.name not in {"__init__.py", "__main__.py"}
    return [f"{folder}: {count} modules" for folder, count in counts.items() if count > most]


def homonyms(modules: Sources, allowed: Iterable[str]) -> list[str]:
    """Return names of more than one class, and allowed ones that are not."""
    places: dict[str, list[str]] = defaultdict(list)
    for source in modules:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{source.label}:{node.lineno}")
    found = [
        f"{where}: {name} has {len(others)} homes"
        for name, others in places.items()
        if len(others) > 1 and name not in allowed
        for where in others
    ]
    return found + [f"{name}: has one home" for name in allowed if len(places[name]) < 2]


def relative_imports(modules: Sources) -> list[str]:
    return [
        source.at(node.lineno, "a relative import")
        for source in modules
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and node.level
    ]


def talkative_inits(modules: Sources) -> list[str]:
    """Return ``__init__.py`` with more than a docstring; a package's own also has its version."""
    found = []
    for source in modules:
        if has_code(source):
            continue
        top = source.label.count("/") == 1
        rest = [n for n in source.tree.body[1:] if not (top and is_version(n))]
        if not ast.get_docstring(source.tree):
            found.append(source.at(1, "no docstring"))
        found += [source.at(node.lineno, "more than a docstring") for node in rest]
    return found


def is_version(node: ast.stmt) -> bool:
    names = node.targets if isinstance(node, ast.Assign) else []
    return [getattr(name, "id", "") for name in names] == ["__version__"]


# --- what a room touches --------------------------------------------------------------------------

# What of the standard library reaches outside a function's arguments. The longest name counts;
# "" only computes.
REACHES = {
    "asyncio": "loop",
    "concurrent": "threads",
    "contextvars": "threads",
    "datetime.datetime.now": "clock",
    "fcntl": "files",
    "glob": "files",
    "grp": "files",
    "http": "network",
    "http.HTTPStatus": "",
    "io": "files",
    "io.BytesIO": "",
    "io.StringIO": "",
    "logging": "log",
    "logging.Formatter": "",
    "logging.LogRecord": "",
    "marshal": "pickle",
    "multiprocessing": "programs",
    "os": "files",
    "os.PathLike": "",
    "os.environ": "environment",
    "os.environb": "environment",
    "os.fsdecode": "",
    "os.fsencode": "",
    "os.getenv": "environment",
    "os.getpid": "processes",
    "os.kill": "processes",
    "os.execv": "programs",
    "os.execve": "programs",
    "os.fork": "programs",
    "os.killpg": "processes",
    "os.path": "files",
    "os.path.basename": "",
    "os.path.dirname": "",
    "os.path.isabs": "",
    "os.path.join": "",
    "os.path.normpath": "",
    "os.path.relpath": "",
    "os.strerror": "",
    "os.urandom": "random",
    "os.waitpid": "programs",
    "pathlib": "files",
    "pathlib.PurePath": "",
    "pathlib.PurePosixPath": "",
    "pickle": "pickle",
    "pwd": "files",
    "queue": "threads",
    "random": "random",
    "resource": "processes",
    "secrets": "random",
    "select": "network",
    "selectors": "network",
    "shelve": "pickle",
    "shutil": "files",
    "signal": "processes",
    "signal.Signals": "",
    "socket": "network",
    "socketserver": "network",
    "ssl": "network",
    "subprocess": "programs",
    "tempfile": "files",
    "threading": "threads",
    "time": "clock",
    "time.gmtime": "",
    "time.strftime": "",
    "time.strptime": "",
    "urllib": "network",
    "urllib.parse": "",
    "uuid.uuid1": "random",
    "uuid.uuid4": "random",
    # Ours by which others reach outside.
    "submitter.common.command": "programs",
    "templates.job.directory": "files",
    "templates.kube_api": "network",
    "templates.nats.client": "nats",
    "templates.nats.connection": "nats",
}
WORDS = sorted({word for word in REACHES.values() if word})
BUILTINS = {"open": "files", "input": "files", "print": "files", "__import__": "files"}
CLOCK = {"now", "utcnow", "today"}  # by way of datetime


def touches(source: Source) -> Iterator[str]:
    """Yield what a module touches: words of ``REACHES``, or names of packages of others."""
    used = attributes(source)
    for imp in source.imports:
        ours = imp.top in {source.package, "templates"}
        if not ours and imp.top not in sys.stdlib_module_names | {"tomllib"}:
            yield imp.top
            continue
        # What is used of a module that was imported as a whole says more than its name.
        for name in {name for name in used if name.startswith(f"{imp.name}.")} or {imp.name}:
            if word := reach_of(name):
                yield word
    for call in source.calls:
        if isinstance(call.func, ast.Name) and call.func.id in BUILTINS:
            yield BUILTINS[call.func.id]
        if isinstance(call.func, ast.Attribute) and call.func.attr in CLOCK:
            yield "clock"


def attributes(source: Source) -> set[str]:
    """Return the dotted names that are used: ``os.path.join``, and not ``os.path`` for it."""
    names = {
        ast.unparse(node)
        for node in source.nodes
        if isinstance(node, ast.Attribute) and is_dotted(node.value)
    }
    return names - {name.rpartition(".")[0] for name in names}


def is_dotted(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and is_dotted(node.value))


def reach_of(name: str) -> str:
    while name and name not in REACHES:
        name = name.rpartition(".")[0]
    return REACHES.get(name, "")


PROMISE = re.compile(r"\n\n(?:.*\n)*?Touches: ([^.]+)\.\Z")


def promised(docstring: str) -> list[str] | None:
    """Return what the last line of a room's docstring lets it touch, None if it does not say."""
    promise = PROMISE.search(docstring)
    if promise is None:
        return None
    words = " ".join(promise[1].split())
    return [] if words == "nothing" else words.split(", ")


def docstrings(modules: Sources, rooms: Rooms) -> dict[str, str]:
    """Return the docstring of each room, from low to high."""
    inits = {s.label: ast.get_docstring(s.tree) or "" for s in modules if not has_code(s)}
    return {name: inits.get(f"{name}__init__.py", "") for name in Plan(rooms, modules).places}


def broken_promises(modules: Sources, rooms: Rooms) -> list[str]:
    """Return what a room touches that it may not, and what it may and does not."""
    plan = Plan(rooms, modules)
    promises = {name: promised(text) for name, text in docstrings(modules, rooms).items()}
    found = {
        f"{name} does not say what it touches" for name, may in promises.items() if may is None
    }
    done: dict[str, set[str]] = {name: set() for name in promises}
    for source in modules:
        place = plan.place(source.label)
        may = promises[place.name] if place else None
        if place is None or may is None:
            continue
        for word in touches(source):
            done[place.name].add(word)
            if word not in may:
                found.add(f"{source.label} touches {word}")
    for name, may in promises.items():
        found |= {f"{name} does not touch {word}" for word in {*(may or ())} - done[name]}
    return sorted(found)


# --- the pages ------------------------------------------------------------------------------------


def rows(page: str, heading: str) -> list[str]:
    """Return the rows of a section's tables that begin with a folder."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| `")]


def row(name: str, docstring: str) -> str:
    """Return a room's row in docs/architecture.md: its first paragraph, and what it touches."""
    purpose = " ".join(docstring.partition("\n\n")[0].replace("``", "`").split())
    return f"| `{name}` | {purpose} | {', '.join(promised(docstring) or ['nothing'])} |"


# --- the tests ------------------------------------------------------------------------------------


def test_every_module_has_a_room() -> None:
    assert homeless(sources(), ROOMS) == []


def test_a_room_imports_only_what_stands_before_it() -> None:
    assert steps_up(sources(), ROOMS) == []


def test_imports_are_absolute() -> None:
    assert relative_imports(sources()) == []


def test_no_folders_import_each_other() -> None:
    assert cycles(sources()) == []


def test_no_folder_is_crowded() -> None:
    assert crowds(sources()) == []


def test_a_class_name_is_used_once() -> None:
    assert homonyms(sources(), HOMONYMS) == []


def test_the_beginning_of_a_room_is_its_docstring() -> None:
    assert talkative_inits(sources()) == []


def test_rooms_touch_what_they_promise() -> None:
    assert broken_promises(sources(), ROOMS) == []


def test_promises_are_in_words_that_are_known() -> None:
    ours = packages()
    odd = [
        f"{name} {word}"
        for name, text in docstrings(sources(), ROOMS).items()
        for word in promised(text) or ()
        if word in ours or (word not in WORDS and word in sys.stdlib_module_names)
    ]
    assert odd == []


def test_the_readme_has_the_rooms_from_low_to_high() -> None:
    page = (REPO / "README.md").read_text(encoding="utf-8")
    for package, ranks in ROOMS.items():
        names = [f"`{name}`" for rank in ranks for name in rank if name]
        (line,) = [line for line in rows(page, "The map") if line.startswith(f"| `{package}/`")]
        assert line.endswith(f"| {', '.join(names)} |")


def test_the_page_has_the_docstrings_of_rooms() -> None:
    page = (REPO / "docs/architecture.md").read_text(encoding="utf-8")
    expected = [row(*one) for one in docstrings(sources(), ROOMS).items()]
    assert rows(page, "The rooms") == expected


# --- the rules find -------------------------------------------------------------------------------

TOY: Rooms = {"templates": [["low"], ["left", "right"]]}
LOW, LEFT, RIGHT = "templates/low/a.py", "templates/left/b.py", "templates/right/c.py"


def house(**texts: str) -> list[Source]:
    """Return a module for each of three rooms, with the texts given by their names."""
    labels = {"low": LOW, "left": LEFT, "right": RIGHT}
    return [Source(label, texts.get(name, "")) for name, label in labels.items()]


def rooms(**promises: str) -> list[Source]:
    """Return the beginnings of three rooms, with what they promise to touch."""
    texts = {"low": "nothing", "left": "nothing", "right": "nothing", **promises}
    return [
        Source(f"templates/{name}/__init__.py", f'"""A room.\n\nTouches: {text}.\n"""')
        for name, text in texts.items()
    ]


def test_it_finds_modules_without_a_room_and_rooms_without_a_module() -> None:
    stray = Source("templates/stray/x.py", "")
    assert homeless([*house(), stray], TOY) == ["templates/stray/x.py is in no room"]
    assert homeless(house()[:2], TOY) == ["templates/right/ has no module"]
    assert homeless(house(), TOY) == []


@pytest.mark.parametrize(
    ("place", "text", "found"),
    [
        ("low", "from templates.left import b", f"{LOW} imports templates.left.b"),
        ("left", "import templates.right.c", f"{LEFT} imports templates.right.c"),
        (
            "right",
            "def f():\n  from templates.left.b import B",
            f"{RIGHT} imports templates.left.b.B",
        ),
    ],
)
def test_it_finds_steps_up_and_aside(place: str, text: str, found: str) -> None:
    assert steps_up(house(**{place: text}), TOY) == [found]


def test_it_finds_no_step_down() -> None:
    modules = house(left="from templates.low.a import A", right="from templates.low import a")
    assert steps_up(modules, TOY) == []


def test_a_star_is_every_room_of_a_folder_that_no_other_line_names() -> None:
    texts = {f"templates/low/{name}/m.py": "" for name in ("x", "y", "z")}
    modules = [Source(label, text) for label, text in texts.items()]
    plan = Plan({"templates": [["low/*"], ["low/y"]]}, modules)
    ranks = {name: place.rank for name, place in plan.places.items()}
    assert ranks == {"templates/low/x/": 0, "templates/low/z/": 0, "templates/low/y/": 1}


def test_the_top_of_a_package_is_a_room() -> None:
    plan = {"templates": [["low"], ["left", "right"], [""]]}
    top = Source("templates/main.py", "from templates.left import b")
    assert steps_up([*house(), top], plan) == []
    found = steps_up([*house(low="from templates import main"), top], plan)
    assert found == [f"{LOW} imports templates.main"]


def test_it_finds_relative_imports() -> None:
    assert relative_imports(house(left="from . import x")) == [f"{LEFT}:1: a relative import"]


def test_it_finds_cycles() -> None:
    modules = house(low="import templates.left.b", left="import templates.right.c")
    assert cycles(modules) == []
    modules[2] = Source(RIGHT, "from templates.low.a import x")
    assert len(cycles(modules)) == 3


def test_it_finds_crowds() -> None:
    modules = [Source(f"templates/low/m{number}.py", "") for number in range(13)]
    assert crowds(modules) == ["templates/low/: 13 modules"]
    assert crowds([*modules[:12], Source("templates/low/__init__.py", "")]) == []


def test_it_finds_homonyms() -> None:
    modules = house(low="class A: ...", left="class A: ...", right="class B: ...")
    assert homonyms(modules, []) == [f"{LOW}:1: A has 2 homes", f"{LEFT}:1: A has 2 homes"]
    assert homonyms(modules, ["A"]) == []
    assert homonyms(modules, ["A", "B"]) == ["B: has one home"]


def test_it_finds_what_says_more_than_its_docstring() -> None:
    def found(label: str, text: str) -> list[str]:
        return talkative_inits([Source(label, text)])

    assert found("templates/low/__init__.py", '"""Low."""') == []
    assert found("templates/__init__.py", '"""Top."""\n\n__version__ = "1"') == []
    assert found("templates/low/__init__.py", '"""Low."""\n\n__version__ = "1"') != []
    assert found("templates/low/__init__.py", '"""Low."""\nimport os') != []
    assert found("templates/low/__init__.py", "") != []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("open('x')", "files"),
        ("from pathlib import Path", "files"),
        ("import os\nos.replace('a', 'b')", "files"),
        ("import os\nos.path.exists('a')", "files"),
        ("from os.path import exists", "files"),
        ("import os\nos.environ['A']", "environment"),
        ("from os import getenv", "environment"),
        ("import os\nos.kill(1, 2)", "processes"),
        ("import subprocess", "programs"),
        ("from signal import SIGTERM", "processes"),
        ("from pickle import loads", "pickle"),
        ("import time\ntime.time()", "clock"),
        ("from datetime import datetime\ndatetime.now()", "clock"),
        ("import socket", "network"),
        ("import urllib.request", "network"),
        ("import threading", "threads"),
        ("from concurrent.futures import ThreadPoolExecutor", "threads"),
        ("def f():\n  import asyncio", "loop"),
        ("import logging", "log"),
        ("import random", "random"),
        ("import uuid\nuuid.uuid4()", "random"),
        ("import nats", "nats"),
        ("from flask import Flask", "flask"),
    ],
)
def test_it_finds_what_is_touched(text: str, word: str) -> None:
    modules = house(left=text)
    assert broken_promises([*modules, *rooms()], TOY) == [f"{LEFT} touches {word}"]
    assert broken_promises([*modules, *rooms(left=word)], TOY) == []
    assert broken_promises([*modules, *rooms(low=word)], TOY) != []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.path.join('a', 'b')",
        "import os.path\nos.path.basename('a')",
        "from pathlib import PurePosixPath",
        "from urllib.parse import quote",
        "import logging\nclass F(logging.Formatter): ...",
        "import uuid\nuuid.UUID('x')",
        "import time\ntime.strftime('%Y', time.gmtime(0))",
        "from templates.low import a",
        "import json, re, enum",
    ],
)
def test_it_leaves_alone_what_computes(text: str) -> None:
    assert broken_promises([*house(left=text), *rooms()], TOY) == []


def test_it_finds_promises_that_nothing_needs() -> None:
    found = broken_promises([*house(), *rooms(low="files")], TOY)
    assert found == ["templates/low/ does not touch files"]


def test_it_finds_rooms_that_promise_nothing() -> None:
    found = broken_promises([*house(), *rooms()[1:]], TOY)
    assert found == ["templates/low/ does not say what it touches"]


@pytest.mark.parametrize(
    ("docstring", "words"),
    [
        ("A room.\n\nTouches: nothing.", []),
        ("A room,\nlong.\n\nReasons.\nTouches: files, clock,\nlog.", ["files", "clock", "log"]),
        ("A room. Touches: files.", None),
        ("A room.\n\nTouches: files. And more.", None),
    ],
)
def test_it_reads_promises(docstring: str, words: list[str] | None) -> None:
    assert promised(docstring) == words


def test_a_row_is_the_first_paragraph_and_the_promise() -> None:
    text = "Low things,\nall.\n\nReasons.\n\nTouches: files, log."
    assert row("templates/low/", text) == "| `templates/low/` | Low things, all. | files, log |"
    page = "# A\n\n## B\n\n| folder |\n|---|\n| `x/` | y |\n\n## C\n\n| `z/` | y |\n"
    assert rows(page, "B") == ["| `x/` | y |"]
