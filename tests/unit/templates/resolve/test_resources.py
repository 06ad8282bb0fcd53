"""What a pod asks for in all."""

from __future__ import annotations

from typing import Any

import pytest

from templates.pod.model import INIT, MAIN, SIDECAR, Container, Pod
from templates.resolve.resources import Totals, totals

Asked = dict[str, str]


def make_container(kind: str, requests: Asked, limits: Asked) -> Container:
    return Container("c", kind, "image", requests=requests, limits=limits)


def make_pod(*containers: tuple[str, Asked, Asked], **fields: Any) -> Pod:
    made = tuple(make_container(*container) for container in containers)
    return Pod("p", "n", "u", {}, {}, made, (), **fields)


def cpu(kind: str, amount: str) -> tuple[str, Asked, Asked]:
    return (kind, {"cpu": amount}, {})


def test_a_pod_that_asks_nothing_has_empty_totals() -> None:
    assert totals(make_pod((MAIN, {}, {}))) == Totals()


@pytest.mark.parametrize(
    ("containers", "milli"),
    [
        ([cpu(MAIN, "1"), cpu(MAIN, "500m")], 1500),
        ([cpu(INIT, "3"), cpu(MAIN, "1")], 3000),  # in turn: the larger one
        ([cpu(INIT, "3"), cpu(INIT, "4"), cpu(MAIN, "1")], 4000),
        ([cpu(SIDECAR, "1"), cpu(MAIN, "1")], 2000),  # together: the sum
        ([cpu(INIT, "3"), cpu(SIDECAR, "1"), cpu(MAIN, "1")], 3000),
        ([cpu(SIDECAR, "1"), cpu(INIT, "3"), cpu(MAIN, "1")], 4000),
        ([cpu(SIDECAR, "1"), cpu(INIT, "1"), cpu(SIDECAR, "2"), cpu(MAIN, "1")], 4000),
        ([cpu(SIDECAR, "1"), cpu(SIDECAR, "1"), cpu(INIT, "5"), cpu(MAIN, "1")], 7000),
    ],
)
def test_what_runs_together_is_added_and_what_runs_in_turn_is_not(
    containers: list[tuple[str, Asked, Asked]], milli: int
) -> None:
    assert totals(make_pod(*containers)).cpu_milli == milli


def test_each_resource_has_its_own_most_demanding_moment() -> None:
    pod = make_pod(
        (INIT, {"cpu": "4", "memory": "1Gi"}, {}), (MAIN, {"cpu": "1", "memory": "2Gi"}, {})
    )
    assert totals(pod)[:2] == (4000, 2**31)


def test_a_limit_without_a_request_is_the_request() -> None:
    pod = make_pod((MAIN, {"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}))
    assert totals(pod) == Totals(
        cpu_milli=1000, memory_bytes=2**30, cpu_limit_milli=2000, memory_limit_bytes=2**30
    )


def test_one_container_without_a_limit_leaves_the_pod_without_one() -> None:
    pod = make_pod((MAIN, {}, {"cpu": "2", "memory": "1Gi"}), (MAIN, {}, {"cpu": "1"}))
    found = totals(pod)
    assert (found.cpu_limit_milli, found.memory_limit_bytes) == (3000, 0)
    assert (found.cpu_milli, found.memory_bytes) == (3000, 2**30)


def test_gpus_and_other_resources_are_told_apart() -> None:
    pod = make_pod(
        (
            MAIN,
            {"ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi"},
            {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "2", "rdma/hca": "1"},
        ),
        (MAIN, {}, {"nvidia.com/gpu": "2", "amd.com/gpu": "0"}),
    )
    found = totals(pod)
    assert found.gpus == {"nvidia.com/gpu": 3, "nvidia.com/mig-1g.5gb": 2}
    assert found.ephemeral_storage_bytes == 2**30
    assert found.other == {"hugepages-2Mi": str(2**22), "rdma/hca": "1"}


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu", "gpu.intel.com/i915"]
)
def test_gpus_of_every_vendor_are_known(name: str) -> None:
    assert totals(make_pod((MAIN, {}, {name: "1"}))).gpus == {name: 1}


def test_the_overhead_is_added_to_requests_and_to_limits_that_exist() -> None:
    pod = make_pod((MAIN, {"cpu": "1"}, {"cpu": "2"}), overhead={"cpu": "250m", "memory": "120Mi"})
    assert totals(pod) == Totals(
        cpu_milli=1250, memory_bytes=120 * 2**20, cpu_limit_milli=2250, memory_limit_bytes=0
    )


def test_what_the_pod_itself_asks_wins_over_its_containers() -> None:
    pod = make_pod(
        (MAIN, {"cpu": "1", "memory": "1Gi"}, {}),
        requests={"cpu": "3", "nvidia.com/gpu": "1"},
        limits={"cpu": "4", "memory": "2Gi"},
    )
    assert totals(pod) == Totals(
        cpu_milli=3000,
        memory_bytes=2**30,  # its containers ask for memory: its own limit is no request then
        cpu_limit_milli=4000,
        memory_limit_bytes=2**31,
    )


def test_a_limit_of_the_pod_is_its_request_when_nobody_requests_any() -> None:
    pod = make_pod((MAIN, {}, {}), limits={"cpu": "4"})
    assert totals(pod) == Totals(cpu_milli=4000, cpu_limit_milli=4000)


def test_rounding_is_up() -> None:
    assert totals(make_pod((MAIN, {"cpu": "1.0001", "memory": "1500m"}, {})))[:2] == (1001, 2)
