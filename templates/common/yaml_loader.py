"""YAML as Kubernetes reads it: every value is one that JSON has.

PyYAML follows YAML 1.1 to the letter; two of its surprises are switched off: dates stay text, and
``12:30`` is no number of base 60. Anchors may be used, but not to blow a small file up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Optional

import yaml
from yaml.constructor import SafeConstructor

from templates.common.errors import PodRejected

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML without libyaml: the same, ten times slower
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

_DEEPEST = 100
_MOST_VALUES = 500_000

_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class UniqueKeys(SafeConstructor):
    """Part of a safe loader that refuses a mapping with the same key twice."""

    def construct_document(self, node: yaml.Node) -> Any:
        """Return the value of a document, if no mapping in it has a key twice."""
        _refuse_duplicates(node)
        return super().construct_document(node)


def _refuse_duplicates(document: yaml.Node) -> None:
    """Refuse equal keys, as kubectl does: the last one would win in silence."""
    waiting = [document]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
            _refuse_equal([key for key, _ in node.value if isinstance(key, yaml.ScalarNode)])


def _refuse_equal(keys: list[yaml.ScalarNode]) -> None:
    names: set[str] = set()
    for key in keys:
        if key.value in names:
            problem = f"the key {key.value[:80]} stands there twice"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        names.add(key.value)


class _Loader(UniqueKeys, _SafeLoader):
    """Safe loader without dates and numbers of base 60."""


_NUMBERS = (
    (_INT, re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")),
    (
        _FLOAT,
        re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    ),
)
_Loader.yaml_implicit_resolvers = {
    first: [entry for entry in entries if entry[0] not in (_INT, _FLOAT, _TIMESTAMP)]
    for first, entries in _SafeLoader.yaml_implicit_resolvers.items()
}
for _first in "-+.0123456789":
    _Loader.yaml_implicit_resolvers.setdefault(_first, []).extend(_NUMBERS)


def load_documents(where: str, text: str) -> Iterator[Any]:
    """Yield the documents of a file that are not empty, as JSON values; errors are one line."""
    try:
        documents = _json_documents(text)
        if not documents:
            _check_size(where, text)
            documents = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise PodRejected(where, f"is not YAML: {_reason(error)}") from None
    budget = [_MOST_VALUES]
    for document in documents:
        if document is not None:
            yield _plain(document, where, _DEEPEST, budget)


def _check_size(where: str, text: str) -> None:
    """Refuse what PyYAML would not survive: deep nesting, and merged aliases of aliases."""
    sizes: dict[
        Optional[str], int
    ] = {}  # of what has an anchor, with all that its aliases stand for
    opened: list[tuple[Optional[str], int]] = []  # anchor, and the size of all before it
    size = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, size))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = size - before
        elif isinstance(event, yaml.AliasEvent):
            size += sizes.get(event.anchor, 0)
        size += 1
        if len(opened) > _DEEPEST or size > 2 * _MOST_VALUES:  # a list has two events
            raise PodRejected(where, "is nested too deeply or refers to itself")


def _json_documents(text: str) -> list[Any]:
    """Return the documents of a file in JSON, none of another: YAML folds Unicode line breaks."""
    if not text.lstrip().startswith("{"):
        return []
    try:
        parts = re.split(r"^---$", text, flags=re.MULTILINE)
        documents = [json.loads(part, object_pairs_hook=_unique_pairs) for part in parts]
        json.dumps(documents, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return []
    return documents


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError  # the error of the YAML loader has the line
    return found


def _reason(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if problem is None or mark is None:
        return str(error)
    return f"{problem} in line {mark.line + 1}, column {mark.column + 1}"


def _plain(value: object, where: str, depth: int, budget: list[int]) -> Any:
    """Return a copy without aliases, names as text; ``budget`` limits how far a file expands."""
    budget[0] -= 1
    if depth < 0 or budget[0] < 0:
        raise PodRejected(where, "is nested too deeply or refers to itself")
    if type(value) is dict:
        found: dict[str, Any] = {}
        for key, entry in value.items():
            found[_name(key, where)] = _plain(entry, where, depth - 1, budget)
        return found
    if type(value) is list:
        return [_plain(entry, where, depth - 1, budget) for entry in value]
    if value is None or type(value) in (str, bool, int, float):
        return value
    raise PodRejected(where, f"has a value that JSON does not know: {type(value).__name__}")


def _name(key: object, where: str) -> str:
    if type(key) is str:
        return key
    if type(key) is bool:
        return "true" if key else "false"
    if type(key) is int:
        return str(key)
    raise PodRejected(where, f"has a key that is not text: {str(key)[:80]}")
