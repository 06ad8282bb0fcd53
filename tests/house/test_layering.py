"""Who may import whom, and who may touch the outside world: read off the syntax trees."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from typing import Callable

import pytest

from tests.support.sources import REPO, Import, Source, packages, sources

__all__ = ["REPO"]  # other tests know it from here

Rule = Callable[[Source], list[str]]

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
    "templates/nats/requests.py",
    "templates/nats/client.py",
    "templates/nats/connection.py",
    "templates/nats/options.py",
    "templates/nats/chunks.py",
}
# The way to Kubernetes: plugin, operator and submitters share it.
KUBERNETES = {"templates/kube_api/client.py", "templates/kube_api/kubeconfig.py"}
# What single modules may import besides that.
EXTRA = {
    "submitter/tokens/oidc.py": {"requests"},
    "templates/common/json_codec.py": {"orjson"},
    "templates/kube_api/client.py": {"urllib3"},
    "templates/kube_api/kubeconfig.py": {"kubernetes"},
    "templates/cli/nats_site.py": {"nkeys"},
    **{module: {"nats"} for module in CONNECTION},
}

# Standard modules that reach outside the process, and the modules that may use them. A pattern
# ending in a slash is a folder.
WORLD = {
    "subprocess": {"submitter/common/command.py", "templates/cli/render_pod.py"},
    "pickle": set(),
    "marshal": set(),
    "shelve": set(),
}
READS_ENVIRONMENT = {"settings.py", "render_pod.py"}  # by file name, in any package

# Everything in templates is a function of its arguments but its command lines, its connection, the
# one module that writes, the one that runs a program, and the one that answers probes.
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
COMMAND_LINES = {"templates/cli/nats_site.py", "templates/cli/render_pod.py"}
WRITES = {"templates/job/directory.py"}  # what both the command line and submitters need
# What the mains of programs share (the log, signals, the exit, the port for probes), and what else
# logs by itself.
MAINS = {
    "templates/program/health_server.py",
    "templates/program/main_loop.py",
    "templates/program/recurring_error.py",
}
# Parts of those that only compute.
HARMLESS = {
    "logging.Formatter",
    "logging.LogRecord",
    "urllib.parse",
    "pathlib.PurePath",
    "pathlib.PurePosixPath",
    "os.path",
}


ENVIRONMENT = {"environ", "environb", "getenv"}
BUILTINS = {"open", "input", "print", "exec", "eval", "__import__"}
CLOCK = {"now", "utcnow", "today"}  # by way of datetime


def told(found: Iterable[Import]) -> list[str]:
    return [f"{imp.where}: imports {imp.name}" for imp in found]


def imports_of_others(source: Source) -> list[str]:
    """What its package may not import."""
    fine = ALLOWED[source.package] | EXTRA.get(source.label, set()) | {source.package, "__future__"}
    # tomllib is younger than the oldest Python that may run this test.
    fine |= sys.stdlib_module_names | {"tomllib"}
    return told(imp for imp in source.imports if imp.top not in fine)


def relative_imports(source: Source) -> list[str]:
    relative = [n for n in source.nodes if isinstance(n, ast.ImportFrom) and n.level]
    return [source.at(node.lineno, "a relative import") for node in relative]


def ways_outside(source: Source) -> list[str]:
    guarded = [imp for imp in source.imports if imp.top in WORLD]
    return told(imp for imp in guarded if source.label not in WORLD[imp.top])


def reads_of_the_environment(source: Source) -> list[str]:
    if source.name in READS_ENVIRONMENT:
        return []
    used = [
        source.at(node.lineno, f"os.{node.attr}")
        for node in source.nodes
        if isinstance(node, ast.Attribute)
        and node.attr in ENVIRONMENT
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]
    imported = [imp for imp in source.imports if imp.top == "os" and imp.name[3:] in ENVIRONMENT]
    return used + told(imported)


def is_harmless(name: str) -> bool:
    return any(name == fine or name.startswith(fine + ".") for fine in HARMLESS)


def impurities(source: Source) -> list[str]:
    """What of the world a part of templates reaches that should only compute."""
    if (
        source.package != "templates"
        or source.label in COMMAND_LINES | CONNECTION | KUBERNETES | WRITES | MAINS
    ):
        return []
    found = [imp for imp in source.imports if imp.top in IMPURE and not is_harmless(imp.name)]
    called = [
        source.at(call.lineno, f"calls {ast.unparse(call.func)}")
        for call in source.calls
        if (isinstance(call.func, ast.Name) and call.func.id in BUILTINS)
        or (isinstance(call.func, ast.Attribute) and call.func.attr in CLOCK)
    ]
    return told(found) + called


RULES = [imports_of_others, relative_imports, ways_outside, reads_of_the_environment, impurities]
BROKEN = [
    ("templates/x.py", "import submitter.pool.agent", imports_of_others),
    ("submitter/x.py", "def f() -> None:\n    from plugin_server import api", imports_of_others),
    ("templates/job/model.py", "import nats", imports_of_others),
    ("kueue_nats/x.py", "from . import model", relative_imports),
    ("submitter/x.py", "import subprocess", ways_outside),
    ("submitter/common/command.py", "from pickle import loads", ways_outside),
    ("submitter/x.py", "import os\nos.environ['X']", reads_of_the_environment),
    ("submitter/x.py", "from os import getenv", reads_of_the_environment),
    ("templates/x.py", "from pathlib import Path", impurities),
    ("templates/x.py", "from os import replace", impurities),
    ("templates/x.py", "open('x')", impurities),
    ("templates/x.py", "from datetime import datetime\ndatetime.now()", impurities),
]
FINE = [
    ("templates/nats/connection.py", "import nats\nimport asyncio"),
    (
        "templates/x.py",
        "import os.path\nfrom pathlib import PurePosixPath\nimport templates.job.model",
    ),
    ("submitter/common/command.py", "import subprocess"),
    ("submitter/config/settings.py", "import os\nos.environ['X']"),
    ("submitter/x.py", "import os\nfrom templates import job\nopen('x')"),
]


def test_every_package_has_a_rule() -> None:
    assert {name.partition(".")[0] for name in packages()} <= ALLOWED.keys()


@pytest.mark.parametrize("rule", RULES)
def test_all_modules_keep(rule: Rule) -> None:
    assert [found for source in sources() for found in rule(source)] == []


@pytest.mark.parametrize(("label", "text", "rule"), BROKEN)
def test_a_rule_finds(label: str, text: str, rule: Rule) -> None:
    source = Source(label, text)
    assert [broken for broken in RULES if broken(source)] == [rule]
    assert [*rule(source)][-1].startswith(f"{label}:{len(text.splitlines())}: ")


@pytest.mark.parametrize(("label", "text"), FINE)
def test_the_rules_leave_alone(label: str, text: str) -> None:
    assert [found for rule in RULES for found in rule(Source(label, text))] == []
