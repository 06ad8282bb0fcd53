"""chart/README.md from the comments of chart/values.yaml, chart/files/subjects.json from ``TABLE``.

    python -m scripts.lib.chart.readme          prints the page
    python -m scripts.lib.chart.readme --write  writes both

Every key of values.yaml stands below a comment of its own. Keys below a default that is an empty
map or list are the user's, and what is inside of a default is part of it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from templates.nats.subjects import TABLE, SubjectRow

CHART = Path(__file__).resolve().parents[3] / "chart"
HEAD = """\
# The chart

Everything that a cluster needs for pods to become jobs at remote sites: virtual nodes (each one
pod with interLink's virtual kubelet and API server and our plugin), the NATS server that sites
connect to, and the operator that tells Kueue what sites offer. Or, with `condor.enabled`, what
makes a remote HTCondor computing element of use to virtual kubelets of other clusters: interLink's
API server behind OAuth2-proxy, our plugin, and a submitter.
[docs/install.md](../docs/install.md) leads from an empty cluster to a pod that ran.

These values are all that there are; another key is refused. `virtualNodes[]` may have every key of
`virtualNode`, and the `pod` of a component every key of `pod`. This page is made from the
comments of [values.yaml](values.yaml) by `scripts/chart-readme`.

With `grafanaDashboard.enabled`, Grafana shows [this](../docs/pictures/dashboard.png);
[docs/install.md](../docs/install.md#watching-it) says what it is that one sees there.

| value | default | meaning |
|---|---|---|
"""
KEY = re.compile(r"( *)([A-Za-z]\w*):(?: (.*))?")


class Value(NamedTuple):
    """A key of values.yaml."""

    path: str
    default: Any
    comment: str


def values(text: str) -> Iterator[Value]:
    """Every key that has a comment, in the order of the file."""
    whole = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.strip("# "))
            continue
        match = KEY.fullmatch(line)
        if match:
            depth = len(match[1]) // 2
            path = [*path[:depth], match[2]]
            if comment:
                yield Value(".".join(path), _at(whole, path), " ".join(comment))
        comment = []


def _at(whole: Any, path: list[str]) -> Any:
    for key in path:
        whole = whole[key]
    return whole


def page(text: str) -> str:
    """The page; sections have a row of their own, without a default."""
    found = list(values(text))
    rows = []
    for value in found:
        is_section = any(other.path.startswith(f"{value.path}.") for other in found)
        default = "" if is_section else f"`{_shown(value.default)}`"
        rows.append(f"| `{value.path}` | {default} | {value.comment.replace('|', '&#124;')} |\n")
    return HEAD + "".join(rows)


def _shown(default: Any) -> str:
    return json.dumps(default).replace("|", "&#124;")


def subjects() -> str:
    """Return the table of NATS subjects, a row in each line, without what only programs need."""
    kept = [field for field in SubjectRow._fields if not field.startswith("largest")]
    rows = ",\n".join(json.dumps({key: getattr(row, key) for key in kept}) for row in TABLE)
    return f"[\n{rows}\n]\n"


def main(argv: list[str]) -> None:
    """Print the page, or write all that is made."""
    text = page((CHART / "values.yaml").read_text(encoding="utf-8"))
    if argv == ["--write"]:
        (CHART / "README.md").write_text(text, encoding="utf-8")
        (CHART / "files" / "subjects.json").write_text(subjects(), encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
