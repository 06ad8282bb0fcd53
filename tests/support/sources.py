"""Our own modules as syntax trees, for the tests that are rules about all of them."""

from __future__ import annotations

import ast
import configparser
import functools
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Union

REPO = Path(__file__).resolve().parents[2]

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Import(NamedTuple):
    """One imported name, in full: ``from a.b import c`` is ``a.b.c``."""

    where: str
    name: str

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


class Source:
    """A module: its path in the repository, its text, and its syntax tree, which is made once."""

    def __init__(self, label: str, text: str) -> None:
        self.label = label
        self.text = text

    @property
    def package(self) -> str:
        return self.label.partition("/")[0]

    @property
    def name(self) -> str:
        return self.label.rpartition("/")[2]

    def at(self, line: int, what: str) -> str:
        return f"{self.label}:{line}: {what}"

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @functools.cached_property
    def functions(self) -> list[Function]:
        return [n for n in self.nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]

    @functools.cached_property
    def calls(self) -> list[ast.Call]:
        return [n for n in self.nodes if isinstance(n, ast.Call)]

    @functools.cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(self._found_imports())

    def _found_imports(self) -> Iterator[Import]:
        for node in self.nodes:
            where = f"{self.label}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                yield from (Import(where, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield from (Import(where, f"{node.module}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield Import(where, self.package)

    @functools.cached_property
    def code_lines(self) -> set[int]:
        """The numbers of the lines that hold code: no blank ones, no comments, no docstrings."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in self.nodes:
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if is_text and isinstance(node.value.value, str):
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return lines


def packages() -> list[str]:
    """Return the packages that get installed, without what is inside of them."""
    cfg = configparser.RawConfigParser()
    cfg.read(REPO / "setup.cfg")
    return [name.removesuffix("*") for name in cfg["options.packages.find"]["include"].split()]


def modules() -> list[Path]:
    return [path for top in packages() for path in sorted((REPO / top).rglob("*.py"))]


def label(path: Path) -> str:
    return path.relative_to(REPO).as_posix()


@functools.cache
def sources() -> tuple[Source, ...]:
    """All modules of the packages that get installed."""
    return tuple(Source(label(path), path.read_text(encoding="utf-8")) for path in modules())
