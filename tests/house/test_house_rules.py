"""Habits of this code base that no linter of ours checks: sizes, docstrings, words, old bash."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from tests.support.shell_commands import commands
from tests.support.sources import REPO, Source, label, sources

MAX_FUNCTION_SLOC = 40
MAX_MODULE_LINES = 500
MAX_NESTING = 4

Rule = Callable[[Source], list[str]]
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def long_modules(source: Source) -> list[str]:
    lines = len(source.text.splitlines())
    return [source.at(lines, f"{lines} lines")] if lines > MAX_MODULE_LINES else []


def long_functions(source: Source) -> list[str]:
    """Those that do not fit on a screen."""
    sizes = [
        (f, len(source.code_lines & set(range(f.lineno, (f.end_lineno or 0) + 1))))
        for f in source.functions
    ]
    return [
        source.at(f.lineno, f"{f.name}: {size} lines of code")
        for f, size in sizes
        if size > MAX_FUNCTION_SLOC
    ]


def nesting(node: ast.AST) -> int:
    """How deep blocks stand in blocks; ``elif`` is not deeper than its ``if``."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        opens = isinstance(child, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor))
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and child in node.orelse
        deepest = max(deepest, nesting(child) + (opens and not is_elif))
    return deepest


def deep_functions(source: Source) -> list[str]:
    depths = [(f, nesting(f)) for f in source.functions]
    return [
        source.at(f.lineno, f"{f.name}: nests {depth} deep")
        for f, depth in depths
        if depth > MAX_NESTING
    ]


def without_docstring(source: Source) -> list[str]:
    """Modules, classes and public functions."""
    top = [n for n in source.tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    bare = [n for n in top if not n.name.startswith("_") and not ast.get_docstring(n)]
    found = [source.at(n.lineno, f"{n.name}: no docstring") for n in bare]
    return found if ast.get_docstring(source.tree) else [source.at(1, "no docstring"), *found]


def without_annotation(source: Source) -> list[str]:
    found = []
    for f in source.functions:
        named = [*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]
        bare = [a.arg for a in named if a.annotation is None and a.arg not in {"self", "cls"}]
        found += [source.at(f.lineno, f"{f.name}: {name} is not annotated") for name in bare]
        if f.returns is None:
            found.append(source.at(f.lineno, f"{f.name}: no annotation of what it returns"))
    return found


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def shortcuts(source: Source) -> list[str]:
    never = {"eval", "exec", "system", "popen"}
    never |= {"print"} if source.name != "render_pod.py" else set()
    found: list[tuple[int, str]] = []
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append((node.lineno, "a bare except"))
        elif isinstance(node, ast.Global):
            found.append((node.lineno, f"global {', '.join(node.names)}"))
        elif isinstance(node, ast.Call):
            found += [(node.lineno, "shell=...") for k in node.keywords if k.arg == "shell"]
            found += [(node.lineno, f"calls {called(node)}")] if called(node) in never else []
    return [source.at(line, what) for line, what in found]


def unfinished(source: Source) -> list[str]:
    return [
        source.at(number, found[0])
        for number, line in enumerate(source.text.splitlines(), 1)
        if (found := UNFINISHED.search(line))
    ]


RULES: list[Rule] = [
    long_modules,
    long_functions,
    deep_functions,
    without_docstring,
    without_annotation,
    shortcuts,
    unfinished,
]
TITLE = '"""A module."""\n'
SIGNATURE = "def _f({}) -> None: ..."
DEEP = "def _f() -> None:\n    for x in y:\n" + "".join(
    f"{' ' * indent}if x:\n" for indent in (8, 12, 16, 20)
)
BROKEN: list[tuple[Rule, str]] = [
    (long_modules, TITLE + "x = 1\n" * 500),
    (long_functions, TITLE + "def _f() -> None:\n" + "    x = 1\n" * 40),
    (deep_functions, TITLE + DEEP + " " * 24 + "pass"),
    (without_docstring, "x = 1"),
    (without_docstring, TITLE + "def f() -> None: ..."),
    (without_docstring, TITLE + "class C: ..."),
    (without_annotation, TITLE + "def _f(): ..."),
    (without_annotation, TITLE + SIGNATURE.format("x")),
    (without_annotation, TITLE + SIGNATURE.format("*, x")),
    (without_annotation, TITLE + "class _C:\n    async def f(self, x) -> None: ..."),
    (shortcuts, TITLE + "try: x = 1\nexcept: x = 2"),
    (shortcuts, TITLE + "def _f() -> None:\n    global x\n    x = 1"),
    (shortcuts, TITLE + "run('x', shell=True)"),
    (shortcuts, TITLE + "os.system('x')"),
    (shortcuts, TITLE + "eval('x')"),
    (shortcuts, TITLE + "print('x')"),
    (unfinished, TITLE + "# TODO: x"),
]
FINE = [
    TITLE + "x = 1\n" * 499,
    TITLE + "def _f() -> None:\n    # x\n\n" + "    x = 1\n" * 39,
    TITLE + SIGNATURE.format("self, x: int, *, y: int"),
    TITLE + DEEP.replace("                    if x:\n", " " * 20 + "pass\n"),
    TITLE + 'def f() -> None:\n    """Do it."""',
    TITLE + "try: x = 1\nexcept ValueError: x = 2",
]


@pytest.mark.parametrize("rule", RULES)
def test_all_modules_keep(rule: Rule) -> None:
    assert [found for source in sources() for found in rule(source)] == []


@pytest.mark.parametrize(("rule", "text"), BROKEN)
def test_a_rule_finds(rule: Rule, text: str) -> None:
    source = Source("submitter/x.py", text)
    assert [broken for broken in RULES if broken(source)] == [rule]
    assert all(found.startswith("submitter/x.py:") for found in rule(source))


@pytest.mark.parametrize("text", FINE)
def test_the_rules_leave_alone(text: str) -> None:
    source = Source("submitter/x.py", text)
    assert [found for rule in RULES for found in rule(source)] == []


def other_files() -> Iterator[Path]:
    """What is not in a package, or no Python, and is as much ours."""
    yield from (REPO / "scripts").rglob("*")
    yield from (REPO / "templates/script/bash").glob("*")
    yield from (path for path in (REPO / "tests").rglob("*.py") if path != Path(__file__))


def test_nothing_beside_the_modules_is_left_unfinished() -> None:
    ours = [path for path in other_files() if path.is_file() and path.suffix != ".pyc"]
    texts = [Source(label(path), path.read_text(encoding="utf-8")) for path in ours]
    assert [found for source in texts for found in unfinished(source)] == []


# --- the job templates -------------------------------------------------------------------------

# Worker nodes may have bash 4.2 (CentOS 7). What is younger, and why it is not used.
YOUNG_BASH = {
    r"\bwait\s+-[a-z]*n": "wait -n is of bash 4.3",
    r"\bwait\s+-[a-z]*p": "wait -p is of bash 5.1",
    r"\b(mapfile|readarray)\b[^|;&\n]*\s-d": "mapfile -d is of bash 4.4",
    r"\b(local|declare|typeset)\s+-[A-Za-z]*n": "references (-n) are of bash 4.3",
    r"\blocal\s+-(\s|$)": "local - is of bash 4.4",
    r"\$\{[A-Za-z_0-9]+(\[[^]]*\])?@[A-Za-z]\}": "${x@Q} is of bash 4.4",
    r"\$\{[A-Za-z_0-9]+\[-\d+\]": "negative indices are of bash 4.3",
    r"\[-\d+\]=": "negative indices are of bash 4.3",
    r"\$\{?EPOCH(REALTIME|SECONDS)(?!:?-)\b": "is of bash 5.0: give it a default",
    r"\bBASH_ARGV0\b": "is of bash 5.0",
    r"\bSRANDOM\b": "is of bash 5.1",
    r"\bshopt\s+-[a-z]+\s+(\S+\s+)*(inherit_errexit|localvar_\w+|assoc_expand_once|patsub_\w+)": (
        "this option is of bash 4.4 or later"
    ),
    r"%\([^)]*\)T(\\n)?['\"]?\s*($|[;&|)])": "printf %()T means now by itself since bash 4.3",
    r"\$\{[ |]": "${ command; } is of bash 5.3",
    r"\[\[?\s+(.*\s)?-v\s+\S+\[": "-v with an array element is of bash 4.3",
    r"\bulimit\s+-[A-Za-z]*[RkP]": "this limit is of bash 5.0 or later",
    r"\bread\s+(-\S+\s+)*-[a-zA-Z]*E": "read -E is of bash 5.3",
}


# Every awk must do: mawk, gawk and busybox. These are gawk's own.
ONLY_GAWK = re.compile(
    r"\b(gensub|asorti?|patsplit|strtonum|PROCINFO|IGNORECASE|FPAT|FIELDWIDTHS|BEGINFILE|ENDFILE)\b"
)

BUILTINS = """
    : . [ alias bg break builtin caller cd command compgen continue declare dirs disown echo
    enable eval exec exit export false fg getopts hash help jobs kill let local logout mapfile
    popd printf pushd pwd read readarray readonly return set shift shopt source suspend test
    times trap true type typeset ulimit umask unalias unset wait
"""
COREUTILS = """
    b2sum base32 base64 basename cat chgrp chmod chown cksum comm cp csplit cut date dd df
    dirname du env expand expr factor fmt fold groups head hostid id install join link ln
    logname ls md5sum mkdir mkfifo mknod mktemp mv nice nl nohup nproc numfmt od paste pathchk
    pr printenv ptx readlink realpath rm rmdir seq sha1sum sha224sum sha256sum sha384sum
    sha512sum shred shuf sleep sort split stat stdbuf stty sum sync tac tail tee timeout touch
    tr truncate tsort tty uname unexpand uniq unlink users wc who whoami yes
"""
# Anything else needs a reason here, and the script must get along where it is missing or say so.
WITH_A_REASON = {
    "awk": "POSIX; mawk, gawk or busybox",
    "bash": "the job's own interpreter",
    "apptainer": "the runtime",
    "singularity": "the runtime",
    "podman": "the runtime",
    "unshare": "util-linux: name spaces of the host runtime, where the site allows them",
    "mount": "util-linux: mounts inside those",
    "umount": "util-linux: mounts inside those",
    "nsenter": "util-linux: probes see what their container sees",
    "setpriv": "util-linux: runAsUser, where the job may change its user",
    "setsid": "util-linux: a container's processes are signalled as one group",
    "pivot_root": "util-linux: the host runtime's own view of files",
    "tar": "a job that HTCondor sends to a node comes as one file",
    "openssl": "https probes, where it is there",
    "perl": "https probes, where it is there",
}


def strip_jinja(text: str) -> str:
    """Take comments and statements of jinja2 out; what stands for a value becomes a word."""
    text = re.sub(r"<#.*?#>", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"\{%.*?%\}", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r"\{\{.*?\}\}", "VALUE", text, flags=re.DOTALL)


def strip_comments(text: str) -> str:
    """Take bash comments out: from a # that begins a word, outside quotes on its line."""
    lines = []
    for line in text.splitlines():
        for match in re.finditer(r"(?:^|(?<=[\s;]))#", line):
            before = line[: match.start()]
            if before.count("'") % 2 == 0 and re.sub(r"\\.", "", before).count('"') % 2 == 0:
                line = before
                break
        lines.append(line)
    return "\n".join(lines)


def job_templates() -> list[Path]:
    return sorted((REPO / "templates" / "script" / "bash").glob("*.sh.j2"))


def each_template() -> Iterator[tuple[Path, str]]:
    """The templates without jinja2's parts."""
    for path in job_templates():
        yield path, strip_jinja(path.read_text(encoding="utf-8"))


def test_job_scripts_use_no_bash_newer_than_4_2() -> None:
    found = [
        f"{label(path)}:{number}: {why}: {line.strip()}"
        for path, text in each_template()
        for number, line in enumerate(strip_comments(text).splitlines(), 1)
        for pattern, why in YOUNG_BASH.items()
        if re.search(pattern, line)
    ]
    assert found == []


def test_job_scripts_start_only_what_every_node_has() -> None:
    known = {*BUILTINS.split(), *COREUTILS.split(), *WITH_A_REASON, "VALUE"}
    # A function may be defined in one part of the script and called in another.
    known |= {"list_volumes"}  # templates/script/job_script.py writes it
    everything = "\n".join(path.read_text(encoding="utf-8") for path in job_templates())
    known |= set(re.findall(r"^\s*(?:function\s+)?([\w.-]+)\s*\(\)", everything, re.MULTILINE))
    found = [
        f"{label(path)}:{command.line}: {command.name}"
        for path, text in each_template()
        for command in commands(text)
        if command.name not in known
    ]
    assert found == []


def test_job_scripts_use_the_awk_that_all_have() -> None:
    found = [
        f"{label(path)}:{number}: {word}"
        for path, text in each_template()
        for number, line in enumerate(strip_comments(text).splitlines(), 1)
        for word in ONLY_GAWK.findall(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "wait -n",
        "wait -fn $pid",
        "mapfile -t -d '' x",
        "local -n ref=$1",
        "echo ${x@Q}",
        "echo ${args[@]@Q}",
        "echo ${list[-1]}",
        "now=$EPOCHREALTIME",
        "now=${EPOCHSECONDS}",
        "printf '%(%s)T'",
        "x=$(printf '%(%s)T')",
    ],
)
def test_the_rule_about_old_bash_finds(line: str) -> None:
    assert any(re.search(pattern, line) for pattern in YOUNG_BASH)


@pytest.mark.parametrize(
    "line",
    [
        'wait "$pid"',
        "mapfile -t lines <file",
        "local -a names",
        'echo "${list[@]}"',
        "now=${EPOCHREALTIME:-}",
        "now=${EPOCHREALTIME-}",
        "printf '%(%s)T' -1",
        'case "$x" in *@*) ;; esac',
        "echo ${x[$((i - 1))]}",
    ],
)
def test_the_rule_about_old_bash_leaves_alone(line: str) -> None:
    assert [why for pattern, why in YOUNG_BASH.items() if re.search(pattern, line)] == []


def test_tiers_with_a_folder_of_their_own_are_marked_in_it_only() -> None:
    """``scripts/test`` looks for their tests nowhere else."""
    apart = re.search(r"^apart=\((.*)\)$", (REPO / "scripts/test").read_text(), re.MULTILINE)
    assert apart is not None
    for tier in apart[1].split():
        sites = REPO / "tests" / "sites" / tier
        folder = sites if sites.is_dir() else REPO / "tests" / tier
        marked = [
            path
            for path in (REPO / "tests").rglob("*.py")
            if re.search(rf"pytest\.mark\.{tier}\b", path.read_text(encoding="utf-8"))
        ]
        assert marked, tier
        assert [path for path in marked if folder not in path.parents] == []
