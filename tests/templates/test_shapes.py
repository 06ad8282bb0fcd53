"""What is kept of pods changes nothing but the time, holds nothing of their own, and is bounded."""

from __future__ import annotations

import copy
import gc
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from templates import shaped, shapes
from templates.build_config import (
    RUNTIMES,
    Apptainer,
    BuildConfig,
    Claim,
    HostPath,
    Podman,
    Runtime,
    Volumes,
)
from templates.errors import PodRejected
from templates.job import Job, build
from templates.pod import Pod
from templates.request import read_create_request
from templates.shapes import Shape, Shapes
from tests.bench import create_request
from tests.mutations import JUNK, places

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"
VOLUMES = Volumes(
    host_paths=(HostPath("/"),), claims={"data": Claim("/claims/$namespace,/$claim/$pod")}
)
PODMAN = BuildConfig(runtime=Runtime(name="podman"), volumes=VOLUMES)
CONFIGS = [
    *[
        BuildConfig(runtime=Runtime(name=name), volumes=VOLUMES)
        for name in (*RUNTIMES, "kubernetes")
    ],
    replace(PODMAN, podman=Podman(network="pasta")),
    replace(PODMAN, runtime=Runtime(name="apptainer"), apptainer=Apptainer(tmp_dir="none")),
]
Request = dict[str, Any]
Outcome = Union[Job, str]


@pytest.fixture(autouse=True)
def known() -> Shapes:
    return forget()


def forget() -> Shapes:
    """Begin with no shape at all."""
    shaped.shapes = Shapes()
    return shaped.shapes


def outcome(request: Request, config: BuildConfig) -> Outcome:
    try:
        return build(read_create_request(json.dumps(request).encode()), config)
    except PodRejected as error:
        return str(error)


def cold(request: Request, configs: Sequence[BuildConfig] = CONFIGS) -> list[Outcome]:
    """What becomes of a pod that is the first of its shape."""
    found = []
    for config in configs:
        forget()
        found.append(outcome(request, config))
    return found


def warm(request: Request, configs: Sequence[BuildConfig] = CONFIGS) -> list[Outcome]:
    """What becomes of it when others of its shape have come before."""
    forget()
    for number in range(3):
        for config in configs:
            outcome(sibling(request, number), config)
    return [outcome(request, config) for config in configs]


def sibling(request: Request, number: int) -> Request:
    """Another pod of the same shape, with all else its own."""
    other = copy.deepcopy(request)
    text = re.sub(r"kube-api-access-\w{5}", f"kube-api-access-{number:05d}", json.dumps(other))
    other = json.loads(text)
    metadata = other["pod"]["metadata"]
    metadata.update(name=f"pod-{number}", uid=f"0b9c2c53-1d55-4c0e-8a53-{number:012d}")
    spec = other["pod"]["spec"]
    spec["hostname"] = f"host-{number}"
    for container in spec.get("initContainers", []) + spec["containers"]:
        container["args"] = [f"argument {number}", "$(SIBLING)"]
        container["env"] = [{"name": "SIBLING", "value": f"{number}"}]
    return other  # its contents stay: without them nothing would be kept that depends on them


def recorded(name: str, version: str = "0.6.2") -> Request:
    body: Request = json.loads((RECORDINGS / version / f"create-{name}.json").read_text())["body"]
    return body


def made(number: int) -> Request:
    request: Request = json.loads(create_request.body(number))
    return request


def without_ties(request: Request) -> Request:
    """A request whose containers have no probes, hooks and expressions: then it has a shape."""
    spec = request["pod"]["spec"]
    for container in spec["initContainers"] + spec["containers"]:
        for key in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
            container.pop(key, None)
        for mount in container.get("volumeMounts", []):
            mount.pop("subPathExpr", None)
    return request


REQUESTS = [
    made(7),
    recorded("everything"),
    without_ties(recorded("everything")),
    without_ties(recorded("everything", "0.5.2-pre2")),
    recorded("plain"),
]
SHAPED = [REQUESTS[index] for index in (0, 2, 3, 4)]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_pod_of_a_known_shape_is_what_it_would_be_as_the_first(request_: Request) -> None:
    first = cold(request_)
    assert any(isinstance(one, Job) for one in first)
    assert warm(request_) == first
    assert len(shaped.shapes) == (request_ in SHAPED)


@pytest.mark.parametrize("request_", SHAPED)
def test_the_second_pod_of_a_shape_is_kept_and_the_third_is_filled(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, kept in enumerate((0, 1, 1)):
        outcome(sibling(request_, number), CONFIGS[0])
        assert len(shaped.shapes) == kept
    monkeypatch.setattr(shaped, "read_pod", None)  # nobody asks for it any more
    assert isinstance(outcome(sibling(request_, 4), CONFIGS[0]), (Job, str))


@settings(max_examples=150)
@given(st.sampled_from(REQUESTS), st.data())
def test_hostile_pods_are_alike_too(request_: Request, data: st.DataObject) -> None:
    """Junk anywhere, before others of the shape or after them: the same job, the same words."""
    hostile = copy.deepcopy(request_)
    for _ in range(data.draw(st.integers(1, 2))):
        way = data.draw(st.sampled_from(list(places(hostile))))
        holder: Any = hostile
        for step in way[:-1]:
            holder = holder[step]
        holder[way[-1]] = copy.deepcopy(data.draw(st.sampled_from(JUNK)))
    configs = [data.draw(st.sampled_from(CONFIGS))]
    first = cold(hostile, configs)
    for number in range(3):
        outcome(sibling(request_, number), configs[0])
    assert [outcome(hostile, configs[0]) for _ in range(3)] == first * 3


OWN = st.text(st.characters(codec="utf-8"), max_size=8)


@given(
    st.lists(OWN, max_size=3),
    st.dictionaries(OWN, OWN, max_size=3),
    st.dictionaries(OWN, OWN, max_size=2),
    st.sampled_from(CONFIGS),
)
def test_what_is_a_pods_own_is_taken_from_it_alone(
    args: list[str], env: dict[str, str], labels: dict[str, str], config: BuildConfig
) -> None:
    request = made(1)
    request["pod"]["metadata"]["labels"] = labels
    main = request["pod"]["spec"]["containers"][0]
    main["args"] = args
    main["env"] = [{"name": name, "value": value} for name, value in env.items()]
    assert warm(request, [config]) == cold(request, [config])


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec["containers"][0].update(image="python:3.13"),
        lambda spec: spec["containers"][0]["resources"]["limits"].update(cpu="3"),
        lambda spec: spec["containers"][0]["volumeMounts"][1].update(readOnly=True),
        lambda spec: spec["volumes"][0]["configMap"].update(defaultMode=0o400),
        lambda spec: spec["volumes"][0]["configMap"]["items"][0].update(path="other"),
        lambda spec: spec["tolerations"][1].update(value="slurm-b"),
        lambda spec: spec.update(activeDeadlineSeconds=5),
        lambda spec: spec.update(terminationGracePeriodSeconds=31.0),
        lambda spec: spec.update(terminationGracePeriodSeconds=None),
        lambda spec: spec.update(terminationGracePeriodSeconds=float("nan")),
        lambda spec: spec.update(terminationGracePeriodSeconds=True),
    ],
)
def test_what_differs_elsewhere_is_another_shape(change: Callable[[Request], object]) -> None:
    other = made(1)
    change(other["pod"]["spec"])
    expected = cold(other)
    warm(made(2))
    assert [outcome(other, config) for config in CONFIGS] == expected


def test_what_came_with_a_pod_decides_about_its_volumes() -> None:
    """Contents that are missing, more or none, among others of the shape that have them."""
    lacking, more, none, object_ = made(1), made(2), made(3), made(4)
    lacking["container"][1]["secrets"] = None
    more["container"][1]["secrets"][0]["data"]["more"] = "QUFB"
    none["container"][1]["secrets"][0]["data"] = {}
    none["container"][1]["projectedvolumemaps"][0]["data"] = {}
    for entry in object_["container"]:
        entry["configMaps"] = [{"metadata": {"name": "train-cfg"}, "data": {"b": "x"}}]
    for request in (lacking, more, none, object_):
        first = cold(request)
        warm(made(5))
        assert [outcome(request, config) for config in CONFIGS] == first
    assert "did not come with the pod" in str(cold(lacking)[0])


def test_of_several_reasons_a_pod_is_refused_for_the_same_one() -> None:
    def twice_wrong(number: int) -> Request:
        request = made(number)
        spec = request["pod"]["spec"]
        spec["volumes"][3] = {"name": "work", "hostPath": {"path": "relative"}}
        spec["containers"][0]["env"] = [{"name": "IFS", "value": "x"}]
        return request

    expected = cold(twice_wrong(1))
    assert "hostPath" in str(expected[0])
    for number in range(4):
        assert [outcome(twice_wrong(number), config) for config in CONFIGS] == expected


def test_a_place_that_is_named_after_a_pod_is_not_kept() -> None:
    requests = [made(number) for number in range(6)]
    for request in requests:
        claim = {"name": "work", "persistentVolumeClaim": {"claimName": "data"}}
        request["pod"]["spec"]["volumes"][3] = claim
    expected = [cold(request) for request in requests]
    forget()
    for request, outcomes in zip(requests * 2, expected * 2):
        assert [outcome(request, config) for config in CONFIGS] == outcomes
    assert len(shaped.shapes) == 1
    assert not [one for one in everything_kept() if isinstance(one, str) and "train-5" in one]


def test_a_container_that_interlink_keeps_for_itself_is_no_part_of_a_shape() -> None:
    request = made(1)
    request["pod"]["metadata"]["annotations"]["interlink.eu/disable-offload-init-containers"] = (
        "prep"
    )
    expected = cold(request)
    assert isinstance(expected[0], Job)
    assert [name for name, _, _ in expected[0].containers] == ["main"]
    warm(made(2))
    assert [outcome(request, config) for config in CONFIGS] == expected


@pytest.mark.parametrize("key", ["image-root", "pre-exec", "singularity-mounts", "mpi-flags"])
def test_annotations_count_among_pods_of_one_shape(key: str) -> None:
    values = {"image-root": "/images/", "singularity-mounts": "--bind /data:/d"}
    request = made(1)
    request["pod"]["metadata"]["annotations"][f"slurm-job.vk.io/{key}"] = values.get(key, "x")
    expected = cold(request)
    warm(made(2))
    for _ in range(3):
        assert [outcome(request, config) for config in CONFIGS] == expected


def test_a_volume_named_as_a_tokens_is_not_taken_for_one() -> None:
    for kind in ("emptyDir", "configMap", "projected"):
        requests = []
        for end in ("aaaaa", "bbbbb", "ccccc", "ddddd"):
            name = f"kube-api-access-{end}"
            text = json.dumps(made(1)).replace('"cfg"', f'"{name}"')
            requests.append(json.loads(text.replace("busybox:1.36", name)))
            spec = requests[-1]["pod"]["spec"]
            sources = {"emptyDir": {}, "configMap": spec["volumes"][0]["configMap"]}
            sources["projected"] = {"sources": [{"configMap": sources["configMap"]}]}
            sources["projected"]["sources"][0]["configMap"].pop("defaultMode", None)
            spec["volumes"][0] = {"name": name, kind: sources[kind]}
        expected = [cold(request) for request in requests]
        forget()
        for request, outcomes in zip(requests * 3, expected * 3):
            assert [outcome(request, config) for config in CONFIGS] == outcomes


# --- what is kept -------------------------------------------------------------------------------


def everything_kept() -> Iterator[object]:
    """All objects that can be reached from the shapes, but for modules and types."""
    waiting: list[object] = [shaped.shapes]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and type(one).__name__ not in ("module", "type", "function"):
            seen.add(id(one))
            yield one
            waiting += gc.get_referents(one)


@pytest.mark.parametrize("request_", SHAPED)
def test_nothing_is_kept_that_may_be_secret(request_: Request) -> None:
    mark = "s3cr3t"
    request = copy.deepcopy(request_)
    metadata = request["pod"]["metadata"]
    metadata["labels"] = {"a": mark}
    metadata["annotations"] = {"note": mark, "slurm-job.vk.io/flags": mark}
    for container in request["pod"]["spec"]["containers"]:
        container.update(command=[mark], args=[mark], env=[{"name": mark, "value": mark}])
    for entry in request["container"]:
        for kind in ("configMaps", "secrets", "projectedvolumemaps"):
            for thing in entry.get(kind) or ():
                for key in thing["data"]:
                    thing["data"][key] = "czNjcjN0" if kind == "secrets" else mark
    for _ in range(4):
        for config in CONFIGS:
            assert mark in str(outcome(request, config))
    kept = [one for one in everything_kept() if isinstance(one, (str, bytes))]
    assert any("bind" in str(one) for one in kept)
    assert not [one for one in kept if mark in str(one) or metadata["uid"] in str(one)]


@pytest.mark.parametrize("place", ["livenessProbe", "lifecycle"])
def test_pods_with_commands_elsewhere_are_not_kept(place: str) -> None:
    request = made(1)
    action = {"exec": {"command": ["curl", "-H", "Authorization: s3cr3t"]}}
    probe = {"livenessProbe": action, "lifecycle": {"preStop": action}}[place]
    request["pod"]["spec"]["containers"][0][place] = probe
    assert isinstance(warm(request)[0], (Job, str))
    assert len(shaped.shapes) == 0


def kept(number: int, size: int = 0) -> tuple[bytes, Shape]:
    return f"{number:08d}".encode().ljust(size, b"x"), Shape(Pod("", "", "", {}, {}, (), ()))


def test_shapes_are_bounded_in_number_and_bytes(known: Shapes) -> None:
    for number in range(shapes.MOST_SHAPES + 10):
        known.keep(*kept(number))
    assert len(known) == shapes.MOST_SHAPES
    assert known.find(kept(9)[0]) is None
    assert known.find(kept(10)[0]) is not None
    for number in range(shapes.MOST_BYTES // shapes.LARGEST_KEY + 10):
        known.keep(*kept(number, shapes.LARGEST_KEY))
    assert len(known) == shapes.MOST_BYTES // shapes.LARGEST_KEY


def test_while_pods_are_all_different_few_are_looked_at_but_a_shape_is_found_again(
    known: Shapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    outline_of = shaped.outline_of
    monkeypatch.setattr(shaped, "outline_of", lambda spec: looked.append(spec) or outline_of(spec))
    for number in range(200):
        request = made(number)
        request["pod"]["spec"]["nodeName"] = f"node-{number}"
        outcome(request, CONFIGS[0])
    assert len(looked) < 100
    assert len(known) == 0
    for number in range(4 * shapes.SELDOM):
        outcome(made(number), CONFIGS[0])
    looked.clear()
    for number in range(20):
        outcome(made(number), CONFIGS[0])
    assert len(known) == 1
    assert len(looked) == 20


def test_a_shape_that_is_kept_twice_counts_once(known: Shapes) -> None:
    for _ in range(2 * shapes.MOST_BYTES // shapes.LARGEST_KEY):
        known.keep(*kept(1, shapes.LARGEST_KEY))
    known.keep(*kept(2))
    assert len(known) == 2


def test_what_pods_of_one_shape_make_of_it_is_bounded() -> None:
    shape, config = kept(1)[1], BuildConfig()
    calls: list[int] = []
    for number in (*range(shapes.MOST_DERIVED + 1), shapes.MOST_DERIVED):
        assert shape.once(number, config, lambda n=number: calls.append(n) or n) == number
    assert calls == list(range(shapes.MOST_DERIVED + 1))
    assert shape.once(0, config, lambda: "again") == "again"


def test_a_huge_spec_has_no_shape() -> None:
    request = made(1)
    request["pod"]["spec"]["nodeName"] = "x" * shapes.LARGEST_KEY
    warm(request)
    assert len(shaped.shapes) == 0


def test_a_spec_that_is_nested_too_deep_has_no_shape() -> None:
    request = made(1)
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    request["pod"]["spec"]["affinity"] = deep
    assert warm(request) == cold(request)


def test_threads_may_build_at_once() -> None:
    requests = [made(number) for number in range(40)] + [recorded("plain"), SHAPED[1]]
    expected = [cold(request) for request in requests]
    forget()
    work = [(index, config) for index in range(len(requests)) for config in range(len(CONFIGS))] * 3
    random.Random(1).shuffle(work)
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda one: outcome(requests[one[0]], CONFIGS[one[1]]), work)
        assert all(one == expected[i][c] for one, (i, c) in zip(found, work))
