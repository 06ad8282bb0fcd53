"""Habits of this code base that no linter of ours checks: sizes, docstrings, words, old bash."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import Union

import pytest

from tests.shell_commands import commands
from tests.test_layering import REPO, every_module, label, modules

MAX_FUNCTION_SLOC = 40
MAX_MODULE_LINES = 400
MAX_PARAMETERS = 6
MAX_NESTING = 4

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.AST) -> list[Function]:
    return [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]


def code_lines(source: str) -> set[int]:
    """The numbers of the lines that hold code: no blank ones, no comments, no docstrings."""
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def nesting(node: ast.AST) -> int:
    """How deep blocks stand in blocks; ``elif`` is not deeper than its ``if``."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        opens = isinstance(child, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor))
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and child in node.orelse
        deepest = max(deepest, nesting(child) + (opens and not is_elif))
    return deepest


@every_module
def test_a_module_is_short_enough_to_read_in_one_go(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_MODULE_LINES


@every_module
def test_a_function_fits_on_a_screen(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    lines = code_lines(source)
    sizes = {
        f"{f.name} (line {f.lineno})": len(lines & set(range(f.lineno, (f.end_lineno or 0) + 1)))
        for f in functions(ast.parse(source))
    }
    assert {name: size for name, size in sizes.items() if size > MAX_FUNCTION_SLOC} == {}


@every_module
def test_a_function_takes_few_parameters_and_nests_little(path: Path) -> None:
    for f in functions(parse(path)):
        named = [*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]
        count = len([arg for arg in named if arg.arg not in {"self", "cls"}])
        assert count <= MAX_PARAMETERS, f"{f.name}: {count} parameters"
        assert nesting(f) <= MAX_NESTING, f"{f.name}: nests {nesting(f)} deep"


@every_module
def test_modules_classes_and_public_functions_have_docstrings(path: Path) -> None:
    tree = parse(path)
    assert ast.get_docstring(tree), "the module has no docstring"
    top = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    bare = [n.name for n in top if not n.name.startswith("_") and not ast.get_docstring(n)]
    assert bare == []


@every_module
def test_everything_is_annotated(path: Path) -> None:
    for f in functions(parse(path)):
        arguments = [*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs]
        bare = [a.arg for a in arguments if a.annotation is None and a.arg not in {"self", "cls"}]
        assert bare == [], f"{f.name}: no annotation"
        assert f.returns is not None, f"{f.name}: no annotation of what it returns"


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


@every_module
def test_no_shortcuts(path: Path) -> None:
    tree = parse(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: a bare except"
        if isinstance(node, ast.Global):
            raise AssertionError(f"line {node.lineno}: global {', '.join(node.names)}")
        if isinstance(node, ast.Call):
            shell = [k for k in node.keywords if k.arg == "shell"]
            assert not shell, f"line {node.lineno}: shell=..."
            assert called(node) not in {"eval", "exec", "system", "popen"}, f"line {node.lineno}"
            if path.name != "render_pod.py":
                assert called(node) != "print", f"line {node.lineno}: print"


def test_nothing_is_left_unfinished() -> None:
    ours = [*modules(), *(REPO / "scripts").rglob("*"), *(REPO / "templates/jobs").glob("*")]
    ours += [path for path in (REPO / "tests").rglob("*.py") if path != Path(__file__)]
    for path in ours:
        if path.is_file() and path.suffix != ".pyc":
            found = UNFINISHED.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{label(path)}: {found}"


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
    return sorted((REPO / "templates" / "jobs").glob("*.sh.j2"))


every_template = pytest.mark.parametrize("path", job_templates(), ids=label)


@every_template
def test_job_scripts_use_no_bash_newer_than_4_2(path: Path) -> None:
    text = strip_comments(strip_jinja(path.read_text(encoding="utf-8")))
    found = [
        f"{label(path)}:{number}: {why}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, why in YOUNG_BASH.items()
        if re.search(pattern, line)
    ]
    assert found == []


@every_template
def test_job_scripts_start_only_what_every_node_has(path: Path) -> None:
    known = {*BUILTINS.split(), *COREUTILS.split(), *WITH_A_REASON, "VALUE"}
    # A function may be defined in one part of the script and called in another.
    known |= {"list_volumes"}  # templates/script.py writes it
    known |= set(re.findall(r"^\s*(?:function\s+)?([\w.-]+)\s*\(\)", every_text(), re.MULTILINE))
    text = strip_jinja(path.read_text(encoding="utf-8"))
    found = [f"{label(path)}:{c.line}: {c.name}" for c in commands(text) if c.name not in known]
    assert found == []


def every_text() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in job_templates())


@every_template
def test_job_scripts_use_the_awk_that_all_have(path: Path) -> None:
    text = strip_comments(strip_jinja(path.read_text(encoding="utf-8")))
    assert ONLY_GAWK.findall(text) == []


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
        folder = REPO / "tests" / tier
        marked = [
            path
            for path in (REPO / "tests").rglob("*.py")
            if re.search(rf"pytest\.mark\.{tier}\b", path.read_text(encoding="utf-8"))
        ]
        assert marked, tier
        assert [path for path in marked if folder not in path.parents] == []
