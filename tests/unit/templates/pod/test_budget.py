"""How much one pod may have: each amount alone, and the table of docs/limits.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from templates.common.errors import PodRejected
from templates.pod import budget
from templates.pod.budget import WORDS, Budget
from templates.pod.create_request import read_create_request
from templates.site.build_config import BuildConfig
from templates.translation.build import build
from tests.support.hostile_pods import (
    MOUNTED,
    config_map,
    container,
    containers_of,
    field_ref,
    mounts,
    request,
    with_spec,
    with_volume,
)

pytestmark = pytest.mark.security

LIMITS = Path(__file__).parents[4] / "docs" / "limits.md"
WITH_VOLUME = {"volumes": [{"name": "v"}]}
LONG = 100_000  # characters of one word, which alone is not too long


def words(count: int) -> list[str]:
    """Words of so many characters together."""
    return ["x" * LONG] * (count // LONG) + ["x" * (count % LONG)]


def with_mounts(first: int, second: int) -> bytes:
    found = [container(f"c{i}", volumeMounts=mounts(n)) for i, n in enumerate((first, second))]
    return request(found, {}, {}, WITH_VOLUME)


def of_two(first: dict[str, Any], second: dict[str, Any]) -> bytes:
    return request([container("a", **first), container("b", **second)], {}, {}, {})


def plain(count: int) -> dict[str, Any]:
    return {"env": [{"name": f"V{i}", "value": "x"} for i in range(count)]}


def amounts(count: int) -> dict[str, Any]:
    return {"resources": {"limits": {f"x.y/r{i}": "1" for i in range(count)}}}


def referring(count: int) -> bytes:
    """A pod whose references stand for so many characters."""
    values = {"a": "x" * LONG, "b": "x" * (count % LONG)}
    keys = ["a"] * (count // LONG) + ["b"]
    listed = [
        {"path": f"p{i}", **field_ref(f"metadata.annotations['{k}']")} for i, k in enumerate(keys)
    ]
    return with_volume({"downwardAPI": {"items": listed}}, {}, annotations=values)


MAKE: dict[str, Callable[[int], bytes]] = {
    "containers": lambda n: with_spec(
        containers=containers_of(n - 7), initContainers=[container(f"i{i}") for i in range(7)]
    ),
    "variables": lambda n: of_two(plain(n - 7), plain(7)),
    "arguments": lambda n: of_two(
        {"args": ["x"] * 7},
        {"args": ["x"] * 7, "lifecycle": {"preStop": {"exec": {"command": ["x"] * (n - 18)}}}},
    ),
    "text": lambda n: of_two({"args": words(LONG)}, {"args": words(n - LONG - 4)}),
    "references": referring,
    "volumes": lambda n: with_spec(volumes=[{"name": f"v{i}"} for i in range(n)]),
    "mounts": lambda n: with_mounts(n - 7, 7),
    "hosts": lambda n: with_spec(
        hostAliases=[
            {"ip": "::1", "hostnames": ["a"] * 6},
            {"ip": "::1", "hostnames": ["a"] * (n - 8)},
        ]
    ),
    "pull_secrets": lambda n: with_spec(imagePullSecrets=[{"name": "s"}] * n),
    "resources": lambda n: of_two(amounts(n - 7), amounts(7)),
    "files": lambda n: with_volume(
        {
            "projected": {
                "sources": [
                    MOUNTED,
                    {"downwardAPI": {"items": [{"path": "x", **field_ref("metadata.name")}]}},
                ]
            }
        },
        config_map({f"k{i}": "" for i in range(n - 1)}),
    ),
    "file_bytes": lambda n: with_volume(
        {
            "configMap": {
                "name": "c",
                "items": [
                    {"key": k, "path": f"{k}{i}"}
                    for i in range(64)
                    for k in ("a", "b")[: 1 + (i == 0)]
                ],
            }
        },
        config_map({"a": "x" * (n // 64), "b": "x" * (n % 64)}),
    ),
}


def translate(body: bytes) -> None:
    build(read_create_request(body), BuildConfig())


def test_every_amount_is_tried() -> None:
    assert MAKE.keys() == WORDS.keys()


@pytest.mark.parametrize("what", WORDS)
def test_a_pod_may_have_so_much_and_no_more(what: str) -> None:
    most = getattr(Budget, what)
    translate(MAKE[what](most))
    with pytest.raises(PodRejected) as caught:
        translate(MAKE[what](most + 1))
    message = str(caught.value)
    assert message.endswith(f" {WORDS[what]} are more than the {most} that a pod may have"), message
    assert message.startswith("pod")


def test_what_is_taken_is_gone_and_the_next_pod_has_all_of_it() -> None:
    ours = Budget()
    ours.take("files", 9_999, "x")
    ours.take("volumes", 1_000, "x")
    ours.take("files", 1, "x")
    with pytest.raises(PodRejected, match=r"^y: 10001 files in volumes are more than the 10000 "):
        ours.take("files", 1, "y")
    Budget().take("files", 10_000, "x")


def test_the_page_has_the_numbers() -> None:
    rows = {
        "values in the JSON of its create request": budget.MOST_VALUES,
        **{words: getattr(Budget, what) for what, words in WORDS.items()},
        "bytes of one argument": budget.LONGEST_ARGUMENT,
        "bytes of one variable with its name": budget.LONGEST_VARIABLE,
        "bytes of all variables and arguments of a container": budget.LONGEST_ENVIRONMENT,
        "characters of all labels, or all annotations, in one variable or file": budget.LONGEST_MAP,
        "characters of an image, or of a variable's name": budget.LONGEST_NAME,
    }
    table = [f"| {what} | {number:,} |" for what, number in rows.items()]
    assert "\n".join(table) in LIMITS.read_text(), "\n".join(table)
