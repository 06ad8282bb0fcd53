"""What the chart says of itself, as far as no helm is needed: values, page, dashboard."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import templates
from kueue_nats.operator import metrics as kueue_metrics
from plugin_server.common.settings import load
from plugin_server.http.app import create_app
from scripts.lib.chart import readme
from tests.support.sources import REPO, packages

CHART = REPO / "chart"
TEXT = (CHART / "values.yaml").read_text(encoding="utf-8")
VALUES = yaml.safe_load(TEXT)
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def test_the_page_is_made_from_the_comments() -> None:
    page = (CHART / "README.md").read_text(encoding="utf-8")
    assert page == readme.page(TEXT), "scripts/chart-readme writes it anew"


def test_the_subjects_are_those_of_the_programs() -> None:
    table = (CHART / "files" / "subjects.json").read_text(encoding="utf-8")
    assert table == readme.subjects(), "scripts/chart-readme writes it anew"


def test_every_value_has_a_comment() -> None:
    explained = {value.path for value in readme.values(TEXT)}
    lists = {"virtualNodes"}  # what is in them is a default
    bare = [path for path in leaves(VALUES, SCHEMA) if path not in explained | lists]
    assert bare == []


def leaves(values: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of all keys that the chart itself knows, and that have no keys below them."""
    properties = resolved(schema).get("properties", {})
    if not properties or not values:
        yield path
        return
    for key, value in values.items():
        yield from leaves(value, properties[key], f"{path}.{key}".lstrip("."))


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found: dict[str, Any] = SCHEMA["definitions"][reference.rpartition("/")[2]]
    return found


def differences(values: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Keys that only the defaults, or only the schema has."""
    schema = resolved(schema)
    properties = schema.get("properties")
    if properties is None or values == {}:
        return
    if schema.get("additionalProperties", True) is not False:
        yield f"{path}: takes any key"
    for key in values.keys() ^ properties.keys():
        yield f"{path}.{key}".lstrip(".")
    for key in values.keys() & properties.keys():
        yield from differences(values[key], properties[key], f"{path}.{key}".lstrip("."))


def test_the_schema_knows_exactly_the_values_that_there_are() -> None:
    assert set(differences(VALUES, SCHEMA)) == {"global"}


def test_an_entry_of_virtual_nodes_may_have_what_virtual_node_has() -> None:
    entry = SCHEMA["properties"]["virtualNodes"]["items"]
    assert entry["additionalProperties"] is False
    without_name = {key: value for key, value in entry["properties"].items() if key != "name"}
    assert without_name == SCHEMA["properties"]["virtualNode"]["properties"]


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (templates.__version__,) * 2


# --- the dashboard --------------------------------------------------------------------------------


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = dashboard["panels"]
    return found


def expressions() -> Iterator[str]:
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])


def exported() -> set[str]:
    """Names of all metrics, as the programs themselves tell them."""
    settings = load(
        {
            "INTERLINK_NATS_SERVERS": "nats://127.0.0.1:1",
            "INTERLINK_ORPHANS_API_SERVER": "https://127.0.0.1:1",
            "INTERLINK_ORPHANS_TOKEN_FILE": "/nowhere",
        }
    )
    page = create_app(settings).test_client().get("/metrics").text
    page += kueue_metrics.Metrics().page().decode()
    families = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    return families | {f"{name}_bucket" for name in families}


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    named = set(re.findall(r"\b(?:interlink_plugin|kueue_nats)_\w+", " ".join(expressions())))
    assert len(named) > 10
    assert named - exported() == set()


def test_no_panel_covers_another_and_none_is_left_out_of_a_row() -> None:
    cells: list[tuple[int, int]] = []
    for place in (panel["gridPos"] for panel in panels()):
        columns = range(place["x"], place["x"] + place["w"])
        cells += [(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])]
    height = max(y for _, y in cells) + 1
    assert sorted(cells) == [(x, y) for x in range(24) for y in range(height)]
    assert len({panel["id"] for panel in panels()}) == len(panels())


# --- the images -----------------------------------------------------------------------------------


def test_the_pins_of_the_images_are_what_we_ask_for() -> None:
    text = (REPO / "scripts" / "images" / "pins.txt").read_text(encoding="utf-8")
    pins = dict(
        re.findall(r"^(\S+)==(\S+)(?: \\\n +--hash=sha256:[0-9a-f]{64})+$", text, re.MULTILINE)
    )
    assert len(pins) == text.count("==")  # each with a hash
    config = configparser.RawConfigParser()
    config.read(REPO / "setup.cfg")
    extras = config["options.extras_require"]
    texts = [config["options"]["install_requires"], extras["plugin"], extras["kueue"]]
    for line in "\n".join(texts).split("\n"):
        wanted = Requirement(line) if line.strip() and not line.startswith("#") else None
        if wanted is None or (wanted.marker and not wanted.marker.evaluate()):
            continue
        name = wanted.name.lower().replace("_", "-")
        assert wanted.specifier.contains(pins[name]), line


@pytest.mark.parametrize("name", ["plugin", "submitter", "submitter-condor", "kueue-nats"])
def test_an_image_starts_a_program_that_there_is(name: str) -> None:
    text = (REPO / "scripts" / "images" / f"{name}.Dockerfile").read_text(encoding="utf-8")
    (entry,) = re.findall(r'^ENTRYPOINT \["(.*)"\]$', text, re.MULTILINE)
    setup = (REPO / "setup.cfg").read_text(encoding="utf-8")
    assert re.search(rf"^    {re.escape(entry)} = ", setup, re.MULTILINE)
    assert "\nUSER 65532:65532\n" in text
    # Nothing of an index gets in but by its hash.
    for line in re.findall(r"-m pip .*", text):
        assert "download --no-cache-dir --no-deps --require-hashes" in line or "--no-index" in line


def test_images_find_the_packages_that_are_installed() -> None:
    tops = set(packages())
    for recipe in (REPO / "scripts" / "images").glob("*.Dockerfile"):
        copied = re.findall(r"^COPY (\w+) /src/", recipe.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(copied) == tops, recipe
    ignored = (REPO / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} >= tops
