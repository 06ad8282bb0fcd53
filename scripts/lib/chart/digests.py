"""Values for the chart that name every image by its digest, as registries have them now.

    python -m scripts.lib.chart.digests [VALUES ...]

An image in the chart's values is a map with ``repository``, ``tag`` and ``digest``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[3] / "chart"

_Values = dict[str, Any]


def merge(values: Mapping[str, Any], more: Mapping[str, Any]) -> _Values:
    """Return the values with others above them, as helm merges them."""
    merged = dict(values)
    for key, value in more.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = merge(below, value)
        merged[key] = value
    return merged


def digests(values: Mapping[str, Any], images: Mapping[str, Any], version: str) -> _Values:
    """Return the digest of every image in the values, at its key."""
    found: _Values = {}
    for key, value in values.items():
        if not isinstance(value, Mapping):
            continue
        if "repository" in value:
            found[key] = {"digest": _ask(_reference(value, images, version))}
        elif inner := digests(value, images, version):
            found[key] = inner
    return found


def _reference(image: Mapping[str, Any], images: Mapping[str, Any], version: str) -> str:
    name = image["repository"]
    if "/" not in name:
        if not images["registry"]:
            raise SystemExit("images.registry: say where your images are, in a file of values")
        name = f"{images['registry'].rstrip('/')}/{name}"
    return f"{name}:{image['tag'] or images['tag'] or version}"


def _ask(reference: str) -> str:
    command = ["skopeo", "inspect", "--format", "{{.Digest}}", f"docker://{reference}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["skopeo said nothing"]
        raise SystemExit(f"{reference}: {lines[-1]}")
    return done.stdout.strip()


def main() -> None:
    """Print the values."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in sys.argv[1:]:
        values = merge(values, yaml.safe_load(Path(path).read_text()) or {})
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    yaml.safe_dump(digests(values, values["images"], version), sys.stdout)


if __name__ == "__main__":
    main()
