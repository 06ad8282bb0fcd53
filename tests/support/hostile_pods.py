"""Create requests that make much of little: of each part of a pod as many as fit into some bytes.

Each is a function of the size, and returns a request of about as many bytes. Those of
``AT_THE_LIMIT`` stay within what a pod may have, so that they are translated.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Callable

UID = "6a1f0c1e-7f0b-4a38-9a36-2f4c9f6f0a11"
Json = dict[str, Any]
Make = Callable[[int], bytes]


def request(containers: list[Json], metadata: Json, attached: Json, spec: Json) -> bytes:
    """A create request with these parts, in Go's compact form."""
    pod = {
        "metadata": {"name": "train-0", "namespace": "team-a", "uid": UID, **metadata},
        "spec": {"containers": containers, **spec},
    }
    whole = {"pod": pod, "container": [{"name": "main", **attached}], "jobConfig": {}}
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()


def container(name: str = "main", **more: Any) -> Json:
    return {"name": name, "image": "busybox", "command": ["sh"], **more}


def of(metadata: Json, **main: Any) -> bytes:
    return request([container(**main)], metadata, {}, {})


def with_main(**main: Any) -> bytes:
    return of({}, **main)


def with_spec(**spec: Any) -> bytes:
    return request([container()], {}, {}, spec)


def with_annotation(name: str, value: str, count: int = 1) -> bytes:
    containers = [container(f"c{i}") for i in range(count)]
    return request(containers, {"annotations": {name: value}}, {}, {})


def with_volume(source: Json, attached: Json, **metadata: Any) -> bytes:
    main = container(volumeMounts=[{"name": "v", "mountPath": "/v"}])
    return request([main], metadata, attached, {"volumes": [{"name": "v", **source}]})


def config_map(data: dict[str, str], name: str = "c") -> Json:
    return {"configMaps": [{"metadata": {"name": name}, "data": data}]}


def secret(data: dict[str, bytes], name: str = "c") -> Json:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {"secrets": [{"metadata": {"name": name}, "data": encoded}]}


def variables(count: int, source: Json) -> list[Json]:
    return [{"name": f"V{i}", "valueFrom": source} for i in range(count)]


def field_ref(path: str) -> Json:
    return {"fieldRef": {"fieldPath": path}}


def items(count: int, source: Json) -> Json:
    listed = [{"path": f"p{i}", **source} for i in range(count)]
    return {"downwardAPI": {"items": listed}}


def containers_of(count: int) -> list[Json]:
    return [container(f"c{i}") for i in range(count)]


def mounts(count: int) -> list[Json]:
    return [{"name": "v", "mountPath": f"/v{i}"} for i in range(count)]


def logins(document: bytes, secrets: int = 1, containers: int = 1) -> bytes:
    attached = secret({".dockerconfigjson": document}, "s")
    spec = {"imagePullSecrets": [{"name": "s"}] * secrets}
    return request(containers_of(containers), {}, attached, spec)


def repeated(unit: bytes, size: int) -> bytes:
    return b",".join([unit] * (size // (len(unit) + 1)))


def json_text(raw: bytes, after: bytes = b"") -> bytes:
    """A request with some JSON in a place that a pod needs nothing of."""
    return with_spec().replace(b'"jobConfig":{}', b'"jobConfig":{"x":' + raw + after + b"}")


def json_list(unit: bytes, after: bytes = b"") -> Make:
    return lambda size: json_text(b"[" + repeated(unit, size) + b"]", after)


LAST_CPU = {"resourceFieldRef": {"containerName": "c498", "resource": "limits.cpu"}}
SURROGATE, NUL = b',"y":"\\ud800"', b',"y":"\\u0000"'
QUOTES = "\U0001f600" + "'" * 30_000
FLAGS, BINDS = "slurm-job.vk.io/mpi-flags", "slurm-job.vk.io/singularity-mounts"
MOUNTED: Json = {"configMap": {"name": "c"}}

HOSTILE: dict[str, Make] = {
    # JSON itself
    "empty lists": json_list(b"[]"),
    "empty objects": json_list(b"{}"),
    "objects": json_list(b'{"a":1}'),
    "nested lists": json_list(b"[" * 500 + b"]" * 500),
    "numbers": json_list(b"0"),
    "long numbers": json_list(b"1" * 4000),
    "a long number": lambda size: json_text(b"1" * size),
    "deep lists": lambda size: json_text(b"[" * size),
    "deep objects": lambda size: json_text(b'{"a":' * (size // 5)),
    "equal keys": lambda size: json_text(b"{" + repeated(b'"a":[]', size) + b"}"),
    "keys": lambda size: json_text(json.dumps({f"k{i}": 1 for i in range(size // 12)}).encode()),
    "an error at the end": lambda size: json_list(b'"a"')(size) + b"x",
    "a surrogate at the end": json_list(b"[0,0,0,0,0,0,0,0,0]", SURROGATE),
    "a surrogate beside a text": lambda size: json_text(b'"' + b"x" * size + b'"', SURROGATE),
    "a long key above many": lambda size: json_text(
        b'{"%s":[%s]}' % (b"k" * (size // 2), repeated(b"[]", size // 4)), NUL
    ),
    "two pods": lambda size: b"[" + repeated(with_spec(), size) + b"]",
    # errors
    "a long key in an error": lambda size: of({"annotations": {"\n" * (size // 2): 1}}),
    "a long value in an error": lambda size: with_main(
        env=variables(1, field_ref("\u0301\t" * (size // 3)))
    ),
    # references
    "an argument many times": lambda size: with_main(
        env=[{"name": "A", "value": "x" * 100_000}], args=["$(A)" * 15] * 1500
    ),
    "open references": lambda size: with_main(args=["$(" * (size // 2)]),
    "open references in a path": lambda size: request(
        [container(volumeMounts=[{"name": "v", "mountPath": "/v", "subPathExpr": "$(" * size}])],
        {},
        {},
        {"volumes": [{"name": "v"}]},
    ),
    "references to nothing": lambda size: with_main(
        env=[{"name": "A", "value": ""}], args=["$(A)" * 10_000] * (size // 40_000)
    ),
    "escaped dollars": lambda size: with_main(args=["$$" * 30_000] * (size // 60_000)),
    "annotations as variables": lambda size: of(
        {"annotations": {"a": "\n" * 200_000}},
        env=variables((size - 400_000) // 90, field_ref("metadata.annotations")),
    ),
    "a ConfigMap as variables": lambda size: request(
        [
            container(
                env=variables(size // 180, {"configMapKeyRef": {"name": "c", "key": "a"}}),
            )
        ],
        {},
        config_map({"a": "x" * (size // 2)}),
        {},
    ),
    "resources as variables": lambda size: request(
        [container(env=variables(size // 250, LAST_CPU)), *containers_of(size // 130)], {}, {}, {}
    ),
    # counts
    "arguments": lambda size: with_main(args=["xxx"] * (size // 6)),
    "variables": lambda size: with_main(
        env=[{"name": f"V{i}", "value": "x"} for i in range(size // 30)]
    ),
    "variables without a value": lambda size: with_main(
        env=[{"name": f"V{i}"} for i in range(size // 18)]
    ),
    "long names of variables": lambda size: with_main(
        env=[{"name": f"V{i}" + "x" * 3000, "value": "x"} for i in range(size // 3020)]
    ),
    "containers": lambda size: request(containers_of(size // 52), {}, {}, {}),
    "volumes": lambda size: with_spec(volumes=[{"name": f"v{i}"} for i in range(size // 17)]),
    "mounts": lambda size: request(
        [container(volumeMounts=mounts(size // 35))],
        {},
        {},
        {"volumes": [{"name": "v", "hostPath": {"path": "/data/" + "'/" * 1000}}]},
    ),
    "ports": lambda size: with_main(
        ports=[{"containerPort": 1, "name": f"p{i}"} for i in range(size // 34)]
    ),
    "headers": lambda size: with_main(
        readinessProbe={"httpGet": {"port": 1, "httpHeaders": [{"name": "a"}] * (size // 13)}}
    ),
    "words of a probe": lambda size: with_main(
        readinessProbe={"exec": {"command": ["xxx"] * (size // 6)}}
    ),
    "capabilities": lambda size: with_main(
        securityContext={"capabilities": {"drop": ["xxx"] * (size // 6)}}
    ),
    "resources": lambda size: with_main(
        resources={"limits": {f"x.y/r{i}": f"1.{i:050d}e-20" for i in range(size // 76)}}
    ),
    "resources of the pod": lambda size: with_spec(
        resources={"limits": {f"hugepages-{i}": f"1.{i:050d}e-20" for i in range(size // 76)}}
    ),
    "tolerations": lambda size: with_spec(tolerations=[{"key": "a"}] * (size // 12)),
    "host aliases": lambda size: with_spec(hostAliases=[{"ip": "1.2.3.4"}] * (size // 17)),
    "an odd address": lambda size: with_spec(hostAliases=[{"ip": ":1" * (size // 2)}]),
    "labels": lambda size: of({"labels": {f"k{i}": "x" for i in range(size // 14)}}),
    "annotations": lambda size: of(
        {"annotations": {f"slurm-job.vk.io/k{i}": "x" for i in range(size // 30)}}
    ),
    "a long image": lambda size: with_main(image="b" * size),
    "a long workingDir": lambda size: with_main(workingDir="/a" * (size // 2)),
    "containers that run elsewhere": lambda size: with_annotation(
        "interlink.eu/disable-offload-containers", "a," * (size // 2)
    ),
    "ConfigMaps": lambda size: request(
        [container()],
        {},
        {"configMaps": [{"metadata": {"name": f"c{i}"}} for i in range(size // 28)]},
        {},
    ),
    # files
    "a file": lambda size: with_volume(MOUNTED, config_map({"a": "\U0001f600" + "x" * size})),
    "a file of brackets": lambda size: with_volume(
        MOUNTED, config_map({"a": '1,[{"\n' * (size // 8)})
    ),
    "a secret file": lambda size: with_volume(
        {"secret": {"secretName": "c"}}, secret({"a": b"x" * (size * 3 // 4)})
    ),
    "files": lambda size: with_volume(
        MOUNTED, config_map({f"k{i}": "" for i in range(size // 14)})
    ),
    "files of many volumes": lambda size: request(
        [container(volumeMounts=[{"name": f"v{i}", "mountPath": f"/v{i}"} for i in range(900)])],
        {},
        config_map({f"k{i}": "" for i in range(1000)}),
        {"volumes": [{"name": f"v{i}", **MOUNTED} for i in range(900)]},
    ),
    "a file many times": lambda size: with_volume(
        {
            "configMap": {
                "name": "c",
                "items": [{"key": "a", "path": f"p{i}"} for i in range(min(size // 70, 9000))],
            }
        },
        config_map({"a": "x" * (size // 2)}),
    ),
    "a ConfigMap many times": lambda size: with_volume(
        {"projected": {"sources": [MOUNTED] * (size // 54)}},
        config_map({f"k{i}": "" for i in range(size // 28)}),
    ),
    "files in deep folders": lambda size: with_volume(
        {"projected": {"sources": []}},
        {
            "projectedvolumemaps": [
                {
                    "metadata": {"name": "v"},
                    "data": {"a/" * 950 + f"k{i}": "" for i in range(size // 1920)},
                }
            ]
        },
    ),
    "annotations as files": lambda size: with_volume(
        items((size - 400_000) // 80, field_ref("metadata.annotations")),
        {},
        annotations={"a": "\n" * 200_000},
    ),
    # logins
    "lists in a login": lambda size: logins(b'{"auths":[' + repeated(b"[]", size // 2) + b"]}"),
    "a deep login": lambda size: logins(b"[" * (size // 2)),
    "a login that is no text": lambda size: logins(
        b'{"auths":{"docker.io":{"auth":[' + repeated(b"0", min(size // 2, 16_000)) + b"]}}}"
    ),
    "a login that is no Unicode": lambda size: logins(
        b'{"auths":{"docker.io":{"username":"\\ud800","password":"x"}}}'
    ),
    "logins many times": lambda size: logins(
        json.dumps({"auths": {f"h{i}": {} for i in range(size // 40)}}).encode(), size // 60, 499
    ),
}

AT_THE_LIMIT: dict[str, Make] = {
    "text of quotes": lambda size: request(
        [
            container(f"c{i}", env=[{"name": "A", "value": QUOTES}], args=["$(A)$(A)"] * 5)
            for i in range(4)
        ],
        {},
        {},
        {},
    ),
    "containers of all annotations": lambda size: request(
        containers_of(490),
        {
            "annotations": {
                FLAGS: "a " * 8000,
                BINDS: "/a:/b," * 100,
                "interlink.eu/pod-ip": "'" * 1000,
                "slurm-job.vk.io/image-root": "/" + "a" * 1000,
            }
        },
        {},
        {},
    ),
    "one long word": lambda size: with_annotation(
        "slurm-job.vk.io/singularity-options", "x" * 16_000
    ),
    "mounts of a long path": lambda size: request(
        [container(volumeMounts=mounts(990))],
        {},
        {},
        {"volumes": [{"name": "v", "hostPath": {"path": "/data/" + "'/" * 1000}}]},
    ),
    "resources of all containers": lambda size: request(
        [container(env=variables(9000, LAST_CPU)), *containers_of(499)], {}, {}, {}
    ),
    "names of resources": lambda size: request(
        [
            container(f"c{i}", resources={"limits": {f"x.y/r{i}.{j}": "1" for j in range(9)}})
            for i in range(499)
        ],
        {},
        {},
        {},
    ),
    "annotations in files": lambda size: with_volume(
        items(1, field_ref("metadata.annotations")),
        {},
        annotations={f"k{i}": '"' for i in range(60_000)},
    ),
    "labels in variables": lambda size: request(
        [container(f"c{i}", env=variables(1, field_ref("metadata.labels"))) for i in range(15)],
        {"labels": {f"k{i}": "\x7f" for i in range(8_000)}},
        {},
        {},
    ),
    "logins of all containers": lambda size: logins(
        json.dumps({"auths": {f"h{i}": {} for i in range(4900)}}).encode(), 100, 499
    ),
    "files in many folders": lambda size: with_volume(
        {
            "configMap": {
                "name": "c",
                "items": [{"key": "a", "path": f"{i}/{i}"} for i in range(9900)],
            }
        },
        config_map({"a": "x" * 100}),
    ),
}
