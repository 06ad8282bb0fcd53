"""Objects of the chart that nobody should change without seeing it.

python -m tests.chart.golden writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.chart.helm import objects, one

FOLDER = Path(__file__).parent / "golden"
WANTED = (
    ("minimal", "Deployment", "il-interlink-nats-interlink"),
    ("minimal", "ConfigMap", "il-interlink-nats-interlink"),
    ("minimal", "ClusterRole", "batch-il-interlink-nats-interlink"),
    ("minimal", "ClusterRole", "batch-il-interlink-nats-orphans"),
    ("minimal", "StatefulSet", "il-interlink-nats-nats"),
    ("minimal", "Deployment", "il-interlink-nats-kueue"),
    ("minimal", "Ingress", "il-interlink-nats-nats"),
    ("everything", "ConfigMap", "il-interlink-nats-nats"),
    ("everything", "Deployment", "il-interlink-nats-gpu"),
    ("everything", "NetworkPolicy", "il-interlink-nats-gpu"),
    ("existing-servers", "Deployment", "il-interlink-nats-kueue"),
    ("condor", "ConfigMap", "il-interlink-nats-api"),
    ("condor", "ConfigMap", "il-interlink-nats-nats"),
    ("condor", "ConfigMap", "il-interlink-nats-submitter"),
    ("condor", "Deployment", "il-interlink-nats-api"),
    ("condor", "Deployment", "il-interlink-nats-submitter"),
    ("condor", "Ingress", "il-interlink-nats-api"),
    ("condor", "Issuer", "il-interlink-nats-acme"),
    ("condor", "NetworkPolicy", "il-interlink-nats-submitter"),
    ("condor-everything", "ConfigMap", "il-interlink-nats-api"),
    ("condor-everything", "ConfigMap", "il-interlink-nats-submitter"),
    ("condor-everything", "Deployment", "il-interlink-nats-submitter"),
)
GOLDEN = {
    FOLDER / f"{name}-{kind.lower()}-{of.removeprefix('il-interlink-nats-')}.yaml": (name, kind, of)
    for name, kind, of in WANTED
}


class Readable(yaml.SafeDumper):
    """Files in ConfigMaps as they are."""


def _text(dumper: Readable, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Readable.add_representer(str, _text)


def golden(path: Path) -> str:
    """What the chart makes now."""
    name, kind, of = GOLDEN[path]
    made = one(objects(name), kind, of)
    text: str = yaml.dump(made, Dumper=Readable, sort_keys=False, width=200)
    return text


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for where in GOLDEN:
        where.write_text(golden(where), encoding="utf-8")
