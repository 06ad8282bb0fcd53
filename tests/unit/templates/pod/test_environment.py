"""Expansion of ``$(VAR)`` and the downward API."""

from __future__ import annotations

from typing import Optional

import pytest

from templates.common.errors import PodRejected
from templates.pod.budget import Budget
from templates.pod.environment import (
    expand,
    field_value,
    missing_names,
    reference_value,
    resource_value,
)
from templates.pod.model import MAIN, Container, Pod

ENV = {"A": "1", "B": "$(A)", "EMPTY": "", "with.dot-x": "d", "$": "dollar"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("", ""),
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)y$(A)z", "x1y1z"),
        ("$(B)", "$(A)"),  # what comes out is not expanded again
        ("$(EMPTY)", ""),
        ("$(with.dot-x)", "d"),
        ("$(NOPE)", "$(NOPE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$$", "$"),
        ("echo $$ > pid", "echo $ > pid"),
        ("$", "$"),
        ("a$", "a$"),
        ("$A ${A} $[A]", "$A ${A} $[A]"),
        ("$(A", "$(A"),
        ("$($$", "$($"),
        ("$(A$(A)", "$(A$(A)"),  # the name ends at the first bracket
        ("$()", "$()"),
        ("$($)", "dollar"),
        ("$(A))", "1)"),
        ("($(A))", "(1)"),
        ("$(A\n)", "$(A\n)"),
        ("$é$(A)", "$é1"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expanded: str) -> None:
    assert expand(text, ENV, Budget(), "x") == expanded


def test_names_without_a_value_are_found() -> None:
    assert list(missing_names("$(A)/$(NOPE)/$$(X)/$(EMPTY)", ENV)) == ["NOPE", "EMPTY"]


def make_container(
    name: str, requests: Optional[dict[str, str]] = None, limits: Optional[dict[str, str]] = None
) -> Container:
    return Container(name, MAIN, "image", requests=requests or {}, limits=limits or {})


POD = Pod(
    "train-0",
    "team-a",
    "6a1f0c1e-7f0b-4a38-9a36-2f4c9f6f0a11",
    {"tier": "1", "app": 'a"b'},
    {"note": "x\ny", "odd/key.x": "v"},
    (
        make_container("main", {"cpu": "1500m", "memory": "100Mi"}, {"cpu": "2", "memory": "1Gi"}),
        make_container("asks", {"cpu": "100m"}),
        make_container("bound", None, {"memory": "1000001", "hugepages-2Mi": "4Mi"}),
    ),
    (),
    node_name="node-1",
    service_account="runner",
)

CONTAINERS = {container.name: container for container in POD.containers}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "train-0"),
        ("metadata.namespace", "team-a"),
        ("metadata.uid", "6a1f0c1e-7f0b-4a38-9a36-2f4c9f6f0a11"),
        ("metadata.labels", 'app="a\\"b"\ntier="1"'),
        ("metadata.annotations", 'note="x\\ny"\nodd/key.x="v"'),
        ("metadata.labels['app']", 'a"b'),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['odd/key.x']", "v"),
        ("metadata.annotations['note']", "x\ny"),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "runner"),
        ("status.podIP", "127.0.0.1"),
        ("status.podIPs", "127.0.0.1"),
        ("status.hostIP", "127.0.0.1"),
        ("status.hostIPs", "127.0.0.1"),
    ],
)
def test_a_field_of_the_pod_has_its_value(path: str, value: str) -> None:
    assert field_value(POD, path, "x") == value


@pytest.mark.parametrize(
    "path", ["status.phase", "metadata", "metadata.labels['a", "metadata.labels[a]", "spec.x['a']"]
)
def test_other_fields_are_refused(path: str) -> None:
    with pytest.raises(PodRejected) as caught:
        field_value(POD, path, "x")
    assert str(caught.value) == f"x: a pod has no such field for its containers: {path}"


def test_no_field_at_all_is_named_in_words() -> None:
    with pytest.raises(PodRejected) as caught:
        field_value(POD, "", "x")
    assert str(caught.value) == "x: a pod has no such field for its containers: none given"


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("plain é 日", '"plain é 日"'),
        ("\\", '"\\\\"'),
        ('"', '"\\""'),
        ("\a\b\f\n\r\t\v", '"\\a\\b\\f\\n\\r\\t\\v"'),
        ("\x00\x1b\x7f", '"\\x00\\x1b\\x7f"'),
        ("\x85\u200b\u2028", '"\\u0085\\u200b\\u2028"'),
        ("\u00a0", '"\\u00a0"'),
        ("\U000e0001", '"\\U000e0001"'),
        ("'`$", '"\'`$"'),
    ],
)
def test_labels_are_quoted_as_go_quotes(value: str, quoted: str) -> None:
    assert field_value(POD._replace(labels={"k": value}), "metadata.labels", "x") == f"k={quoted}"


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"containerName": "main", "resource": "limits.cpu"}, "2"),
        ({"resource": "requests.cpu"}, "2"),  # 1500m, rounded up
        ({"resource": "requests.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.cpu", "divisor": "0"}, "2"),
        ({"resource": "requests.cpu", "divisor": 1}, "2"),
        ({"resource": "limits.memory"}, str(2**30)),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
        ({"resource": "requests.memory", "divisor": "1Gi"}, "1"),
        ({"containerName": "bound", "resource": "limits.memory", "divisor": "1M"}, "2"),
        ({"containerName": "bound", "resource": "requests.memory"}, "1000001"),
        ({"containerName": "bound", "resource": "limits.hugepages-2Mi"}, str(2**22)),
        ({"containerName": "asks", "resource": "limits.cpu", "divisor": "1m"}, "100"),
        ({"containerName": "asks", "resource": "limits.memory"}, "0"),
        ({"containerName": "asks", "resource": "requests.ephemeral-storage"}, "0"),
    ],
)
def test_a_resource_is_given_in_units_of_the_divisor(
    reference: dict[str, object], value: str
) -> None:
    assert resource_value(CONTAINERS, reference, "x", own="main") == value


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"resource": "limits.cpu"}, "x.containerName: the pod has no container ''"),
        (
            {"containerName": "who", "resource": "limits.cpu"},
            "x.containerName: the pod has no container 'who'",
        ),
        (
            {"containerName": "main", "resource": "cpu"},
            "x.resource: not a resource that can be referred to: cpu",
        ),
        (
            {"containerName": "main", "resource": "limits.nvidia.com/gpu"},
            "x.resource: not a resource that can be referred to: limits.nvidia.com/gpu",
        ),
        (
            {"containerName": "main", "resource": "limits.cpu", "divisor": "-1"},
            "x.divisor: must not be negative",
        ),
        (
            {"containerName": "main", "resource": "limits.cpu", "divisor": "x"},
            "x.divisor: not a quantity: x",
        ),
        (
            {"containerName": "main", "resource": "limits.cpu", "divisor": []},
            "x.divisor: must be a quantity, not a list",
        ),
        ({"containerName": 1}, "x.containerName: must be a string, not a number"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(
    reference: dict[str, object], message: str
) -> None:
    with pytest.raises(PodRejected) as caught:
        resource_value(CONTAINERS, reference, "x")
    assert str(caught.value) == message


def test_an_item_of_the_downward_api_is_a_field_or_a_resource() -> None:
    field = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    resource = {"resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}}
    assert reference_value(POD, CONTAINERS, field, "x") == "train-0"
    assert reference_value(POD, CONTAINERS, resource, "x") == "2"
    for wrong in ({}, {**field, **resource}):
        with pytest.raises(PodRejected) as caught:
            reference_value(POD, CONTAINERS, wrong, "x")
        assert str(caught.value) == "x: must have either fieldRef or resourceFieldRef"
