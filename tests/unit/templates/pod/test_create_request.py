"""interLink's create request, as recorded and as malformed as it gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from templates.common.errors import PodRejected
from templates.pod.create_request import read_create_request
from templates.pod.model import (
    INIT,
    MAIN,
    SIDECAR,
    Action,
    Container,
    Mount,
    Pod,
    Probe,
    Security,
    Volume,
)

RECORDINGS = Path(__file__).parents[3] / "data" / "recordings"
FILES = sorted(RECORDINGS.glob("*/create-*.json"))
UID = "6a1f0c1e-7f0b-4a38-9a36-2f4c9f6f0a11"
Request = dict[str, Any]


def recorded(version: str, name: str) -> Request:
    body: Request = json.loads((RECORDINGS / version / f"create-{name}.json").read_text())["body"]
    return body


def make_request(**spec: Any) -> Request:
    main = {"name": "main", "image": "busybox"}
    return {
        "pod": {
            "metadata": {"name": "train-0", "namespace": "team-a", "uid": UID},
            "spec": {"containers": [main], **spec},
        },
        "container": [{"name": "main", "configMaps": None, "secrets": None}],
        "jobConfig": {},
    }


def request_with(**container: Any) -> Request:
    return make_request(
        containers=[{"name": "main", "image": "busybox", **container}],
        volumes=[{"name": "work", "emptyDir": {}}],
    )


def read(request: object) -> Pod:
    return read_create_request(json.dumps(request).encode())


def rejection(request: object) -> str:
    with pytest.raises(PodRejected) as caught:
        read(request)
    return str(caught.value)


def main_of(pod: Pod) -> Container:
    return next(container for container in pod.containers if container.kind == MAIN)


def test_there_are_recordings_of_both_versions() -> None:
    assert {path.parent.name for path in FILES} == {"0.6.2", "0.5.2-pre2"}
    assert len(FILES) == 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_recorded_request_is_a_pod(path: Path) -> None:
    body = json.loads(path.read_text())["body"]
    pod = read(body)
    assert pod.name == body["pod"]["metadata"]["name"]
    assert pod.uid == body["pod"]["metadata"]["uid"]
    assert pod.namespace == "rec"
    assert pod.job_config == {}
    assert pod.job_script == ""
    spec = body["pod"]["spec"]
    expected = [c["name"] for c in spec.get("initContainers", []) + spec["containers"]]
    assert [container.name for container in pod.containers] == expected


@pytest.mark.parametrize("version", ["0.6.2", "0.5.2-pre2"])
def test_a_pod_with_everything_is_read_in_full(version: str) -> None:
    pod = read(recorded(version, "everything"))
    kinds = [(container.name, container.kind) for container in pod.containers]
    assert kinds == [
        ("first", INIT),
        ("sidecar", SIDECAR),
        ("second", INIT),
        ("main", MAIN),
        ("helper", MAIN),
    ]
    assert (pod.restart_policy, pod.grace_period_s, pod.deadline_s) == ("Never", 7, 600)
    assert (pod.node_name, pod.service_account, pod.hostname) == (
        "interlink",
        "runner",
        "everything",
    )
    assert pod.host_aliases == (("10.1.2.3", ("db", "db.local")),)
    assert pod.pull_secrets == ("pull",)
    assert pod.labels == {"app": "rec", "tier": "1"}
    assert pod.tolerations[1]["value"] == "slurm-a"
    assert all(container.security == Security(run_as_user=1000) for container in pod.containers)
    assert pod.volumes[1] == Volume("mem", "emptyDir", {"medium": "Memory", "sizeLimit": "64Mi"})


@pytest.mark.parametrize("version", ["0.6.2", "0.5.2-pre2"])
def test_the_main_container_of_a_pod_with_everything_is_read_in_full(version: str) -> None:
    main = main_of(read(recorded(version, "everything")))
    assert main.command == ("python", "-c")
    assert main.args == ("import os; print(os.environ['MODE'])",)
    assert main.working_dir == "/work"
    assert main.limits == {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert main.startup == Probe(
        Action("exec", command=("cat", "/tmp/started")), period_s=1, failure_threshold=30
    )
    assert main.liveness == Probe(Action("http", port=8080, path="/live"), period_s=5)
    assert main.readiness == Probe(Action("tcp", port=8080), initial_delay_s=1)
    assert main.post_start == Action("exec", command=("touch", "/tmp/started"))
    assert main.pre_stop == Action("sleep", seconds=1)
    assert main.message_from_logs
    assert main.pull_policy == "IfNotPresent"
    assert main.mounts[:3] == (
        Mount("work", "/work"),
        Mount("cfg", "/etc/app", True),
        Mount("cfg", "/etc/one.yaml", False, "a.yaml"),
    )


@pytest.mark.parametrize("version", ["0.6.2", "0.5.2-pre2"])
def test_variables_arrive_final_and_are_not_expanded_again(version: str) -> None:
    env = dict(main_of(read(recorded(version, "everything"))).env)
    assert env["REF"] == "a 'b' \"c\" $D `e`-$(NOPE)-$(PLAIN)"
    assert env["EMPTY"] == ""
    assert env["MULTI"] == "x\ny\n"
    assert env["odd.name-x"] == "1"


@pytest.mark.parametrize("version", ["0.6.2", "0.5.2-pre2"])
def test_a_sub_path_expression_is_expanded_with_the_variables(version: str) -> None:
    helper = read(recorded(version, "everything")).containers[-1]
    assert helper.mounts[0] == Mount("work", "/w", False, "helper")


@pytest.mark.parametrize("version", ["0.6.2", "0.5.2-pre2"])
def test_config_maps_and_secrets_are_decoded_once(version: str) -> None:
    pod = read(recorded(version, "everything"))
    assert set(pod.config_maps) == {"settings"}
    assert pod.config_maps["settings"].data == {
        "a.yaml": b"k: v\nl: 'w'\n",
        "mode": b"fast",
        "odd.key-name": b"x y",
        "blob.bin": b"\x00\x01\x02\x03\x04\xff",
    }
    assert pod.secrets["creds"].data == {"password": b"p'a\"s$s`w\\ord\n", "user": b"ann"}
    assert pod.secrets["creds"].type == "Opaque"
    assert pod.projected["proj"]["token"] == b"HEADER.PAYLOAD.SIGNATURE"
    assert ("down" in pod.projected) == (version == "0.6.2")


def test_a_list_of_one_request_is_the_request() -> None:
    assert read([make_request()]) == read(make_request())


def test_defaults_are_those_of_kubernetes() -> None:
    pod = read(make_request())
    assert pod == Pod(
        "train-0",
        "team-a",
        UID,
        {},
        {},
        (Container("main", MAIN, "busybox", pull_policy="Always"),),
        (),
        hostname="train-0",
    )


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ([], "request: must hold one pod, not 0"),
        ([{}, {}], "request: must hold one pod, not 2"),
        ("text", "request: must be an object, not a string"),
        ({}, "pod: must be an object, not null"),
        ({"pod": []}, "pod: must be an object, not a list"),
        (
            {"pod": {}},
            "pod.metadata.name: must be lower-case letters, digits, dashes and dots, at most 253",
        ),
        ({**make_request(), "container": {}}, "request.container: must be a list, not an object"),
        ({**make_request(), "jobConfig": []}, "request.jobConfig: must be an object, not a list"),
        ({**make_request(), "jobScript": 1}, "request.jobScript: must be a string, not a number"),
    ],
)
def test_a_body_of_another_shape_is_refused(request_: object, message: str) -> None:
    assert rejection(request_) == message


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b'{"pod": "\x00"}', b"[" * 100_000, b"nul"]
)
def test_what_is_not_json_is_refused_in_one_line(body: bytes) -> None:
    with pytest.raises(PodRejected) as caught:
        read_create_request(body)
    assert str(caught.value).startswith("request: is not JSON: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"uid": "x"}, "pod.metadata.uid: must be a lower-case UUID"),
        ({"uid": None}, "pod.metadata.uid: must be a lower-case UUID"),
        (
            {"name": "A"},
            "pod.metadata.name: must be lower-case letters, digits, dashes and dots, at most 253",
        ),
        (
            {"namespace": "a.b"},
            "pod.metadata.namespace: must be 1 to 63 lower-case letters, digits and inner dashes",
        ),
        ({"labels": {"a": 1}}, "pod.metadata.labels['a']: must be a string, not a number"),
        (
            {"annotations": {"a": "b", "c": None}},
            "pod.metadata.annotations['c']: must be a string, not null",
        ),
        ({"annotations": []}, "pod.metadata.annotations: must be an object, not a list"),
    ],
)
def test_bad_metadata_is_refused(metadata: Request, message: str) -> None:
    request = make_request()
    request["pod"]["metadata"].update(metadata)
    assert rejection(request) == message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": []}, "pod.spec.containers: must have a container that is to run here"),
        ({"containers": None}, "pod.spec.containers: must have a container that is to run here"),
        ({"containers": {}}, "pod.spec.containers: must be a list, not an object"),
        ({"containers": [1]}, "pod.spec.containers[0]: must be an object, not a number"),
        (
            {"initContainers": [{"name": "main", "image": "i"}]},
            "pod.spec.containers[0].name: another container is named 'main'",
        ),
        (
            {"initContainers": [{"name": "a", "image": "i", "restartPolicy": "Never"}]},
            "pod.spec.initContainers[0].restartPolicy: "
            "must be Always or absent on an init container",
        ),
        (
            {"initContainers": [{"name": "a", "image": "i", "livenessProbe": {"exec": {}}}]},
            "pod.spec.initContainers[0].livenessProbe: "
            "an init container has it only with restartPolicy Always",
        ),
        (
            {"restartPolicy": "Maybe"},
            "pod.spec.restartPolicy: must be Always, OnFailure or Never, not 'Maybe'",
        ),
        (
            {"activeDeadlineSeconds": "60"},
            "pod.spec.activeDeadlineSeconds: must be a whole number, not a string",
        ),
        (
            {"activeDeadlineSeconds": 1.5},
            "pod.spec.activeDeadlineSeconds: must be a whole number, not 1.5",
        ),
        ({"activeDeadlineSeconds": 0}, "pod.spec.activeDeadlineSeconds: must be at least 1"),
        (
            {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
            "pod.spec.resourceClaims: not supported; ask for devices by resources.limits",
        ),
        ({"os": {"name": "windows"}}, "pod.spec.os.name: must be linux, not 'windows'"),
        (
            {"terminationGracePeriodSeconds": True},
            "pod.spec.terminationGracePeriodSeconds: must be a whole number, not a boolean",
        ),
        (
            {"terminationGracePeriodSeconds": -1},
            "pod.spec.terminationGracePeriodSeconds: must be from 0 to 2147483647",
        ),
        (
            {"terminationGracePeriodSeconds": 10**400},
            "pod.spec.terminationGracePeriodSeconds: must be from 0 to 2147483647",
        ),
        ({"hostNetwork": "yes"}, "pod.spec.hostNetwork: must be a boolean, not a string"),
        (
            {"hostname": "a.b"},
            "pod.spec.hostname: must be 1 to 63 lower-case letters, digits and inner dashes",
        ),
        ({"hostAliases": [{"ip": "x"}]}, "pod.spec.hostAliases[0].ip: must be an IP address"),
        (
            {"hostAliases": [{"ip": "::1", "hostnames": ["a b"]}]},
            "pod.spec.hostAliases[0].hostnames[0]: "
            "must be lower-case letters, digits, dashes and dots, at most 253",
        ),
        (
            {"tolerations": [{"key": 1}]},
            "pod.spec.tolerations[0].key: must be a string, not a number",
        ),
        ({"tolerations": ["x"]}, "pod.spec.tolerations[0]: must be an object, not a string"),
        ({"overhead": {"cpu": "x"}}, "pod.spec.overhead['cpu']: not a quantity: x"),
        (
            {"resources": {"limits": {"cpu": "-1"}}},
            "pod.spec.resources.limits['cpu']: must not be negative",
        ),
        (
            {"securityContext": {"runAsUser": "root"}},
            "pod.spec.securityContext.runAsUser: must be a whole number, not a string",
        ),
        (
            {"volumes": [{"name": "A"}]},
            "pod.spec.volumes[0].name: must be 1 to 63 lower-case letters, digits and inner dashes",
        ),
        (
            {"volumes": [{"name": "a"}, {"name": "a"}]},
            "pod.spec.volumes[1].name: another volume is named 'a'",
        ),
        (
            {"volumes": [{"name": "a", "emptyDir": {}, "secret": {}}]},
            "pod.spec.volumes[0]: is both emptyDir and secret",
        ),
        (
            {"volumes": [{"name": "a", "nfs": "x"}]},
            "pod.spec.volumes[0].nfs: must be an object, not a string",
        ),
        ({"volumes": ["a"]}, "pod.spec.volumes[0]: must be an object, not a string"),
    ],
)
def test_a_bad_spec_is_refused_with_the_path_of_the_field(spec: Request, message: str) -> None:
    assert rejection(make_request(**spec)) == message


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"name": "A"}, "name: must be 1 to 63 lower-case letters, digits and inner dashes"),
        ({"name": "x" * 64}, "name: must be 1 to 63 lower-case letters, digits and inner dashes"),
        ({"image": ""}, "image: must be an image without spaces"),
        ({"image": "a b"}, "image: must be an image without spaces"),
        ({"image": "a\n"}, "image: must be an image without spaces"),
        ({"image": 3}, "image: must be an image without spaces"),
        ({"command": "sh"}, "command: must be a list, not a string"),
        ({"args": ["a", 1]}, "args[1]: must be a string, not a number"),
        ({"args": ["a\0"]}, "args[0]: must not contain a NUL character"),
        ({"command": ["\ud800"]}, "command[0]: is not valid Unicode (a lone surrogate)"),
        ({"workingDir": []}, "workingDir: must be a string, not a list"),
        (
            {"restartPolicy": "Always"},
            "restartPolicy: only the pod and init containers may have one",
        ),
        (
            {"imagePullPolicy": "Sometimes"},
            "imagePullPolicy: must be Always, IfNotPresent or Never, not 'Sometimes'",
        ),
        (
            {"imagePullPolicy": []},
            "imagePullPolicy: must be Always, IfNotPresent or Never, not a list",
        ),
        (
            {"terminationMessagePolicy": "x"},
            "terminationMessagePolicy: must be File or FallbackToLogsOnError, not 'x'",
        ),
        (
            {"terminationMessagePath": "a:b"},
            "terminationMessagePath: must be a path below /, without ':'",
        ),
        ({"resources": {"limits": {"cpu": "two"}}}, "resources.limits['cpu']: not a quantity: two"),
        ({"resources": []}, "resources: must be an object, not a list"),
        ({"volumeDevices": [{"name": "d"}]}, "volumeDevices: block devices are not supported"),
        (
            {"restartPolicyRules": [{"action": "Restart", "exitCodes": {}}]},
            "restartPolicyRules: not supported; the restartPolicy counts",
        ),
        (
            {"securityContext": {"privileged": "yes"}},
            "securityContext.privileged: must be a boolean, not a string",
        ),
        (
            {"securityContext": {"capabilities": {"add": [1]}}},
            "securityContext.capabilities.add[0]: must be a string, not a number",
        ),
        ({"ports": [{"containerPort": 0}]}, "ports[0].containerPort: must be from 1 to 65535"),
        (
            {"ports": [{"containerPort": 1, "name": "A"}]},
            "ports[0].name: must be lower-case letters, digits and dashes",
        ),
    ],
)
def test_a_bad_container_is_refused_with_the_path_of_the_field(
    container: Request, message: str
) -> None:
    assert rejection(request_with(**container)) == f"pod.spec.containers[0].{message}"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("A=1", "env[0]: must be an object, not a string"),
        ({"value": "x"}, "env[0].name: must be a name without '=' and NUL"),
        ({"name": "", "value": "x"}, "env[0].name: must be a name without '=' and NUL"),
        ({"name": "A=B", "value": "x"}, "env[0].name: must be a name without '=' and NUL"),
        ({"name": "A\0", "value": "x"}, "env[0].name: must not contain a NUL character"),
        ({"name": "A", "value": "x\0"}, "env[0].value: must not contain a NUL character"),
        ({"name": "A", "value": "\ud834"}, "env[0].value: is not valid Unicode (a lone surrogate)"),
        ({"name": "A", "value": 1}, "env[0].value: must be a string, not a number"),
        ({"name": 1, "value": "1"}, "env[0].name: must be a string, not a number"),
        ({"name": "A", "valueFrom": {}}, "env[0].valueFrom: must have exactly one source"),
        (
            {"name": "A", "valueFrom": {"fileKeyRef": {}}},
            "env[0].valueFrom: fileKeyRef is not supported",
        ),
        (
            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}},
            "env[0].valueFrom.fieldRef.fieldPath: "
            "a pod has no such field for its containers: status.phase",
        ),
        (
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            "env[0].valueFrom.configMapKeyRef: there is no ConfigMap 'c' with the pod",
        ),
        (
            {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            "env[0].valueFrom.secretKeyRef: there is no Secret 's' with the pod",
        ),
        (
            {"name": "BIG", "value": "x" * 131_052},
            "env: variable BIG takes 131056 bytes with its name; "
            "more than 131055 cannot be handed to a program",
        ),
        (
            {"name": "BIG", "value": "é" * 70_000},
            "env: variable BIG takes 140004 bytes with its name; "
            "more than 131055 cannot be handed to a program",
        ),
    ],
)
def test_a_bad_variable_is_refused(entry: object, message: str) -> None:
    assert rejection(request_with(env=[entry])) == f"pod.spec.containers[0].{message}"


def test_a_variable_that_just_fits_is_taken() -> None:
    value = "x" * 131_051
    assert main_of(read(request_with(env=[{"name": "BIG", "value": value}]))).env == (
        ("BIG", value),
    )


def test_an_argument_longer_than_the_kernel_takes_is_refused() -> None:
    assert len(main_of(read(request_with(args=["x" * 131_071]))).args[0]) == 131_071
    assert rejection(request_with(args=["x" * 131_072])) == (
        "pod.spec.containers[0]: an argument takes 131072 bytes; "
        "more than 131071 cannot be handed to a program"
    )


def test_variables_and_arguments_must_fit_together() -> None:
    env = [{"name": f"V{index:02d}", "value": "x" * 100_000} for index in range(15)]
    assert len(main_of(read(request_with(env=env))).env) == 15
    assert rejection(request_with(env=env, args=["x" * 100_000])) == (
        "pod.spec.containers[0]: variables and arguments take 1600060 bytes together; "
        "more than 1572864 cannot be handed to a program"
    )


def test_the_last_of_two_variables_with_one_name_counts_in_the_place_of_the_first() -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "2"},
        {"name": "A", "value": "3"},
        {"name": "B"},
    ]
    assert main_of(read(request_with(env=env))).env == (("A", "3"), ("B", ""))


def test_an_entry_without_a_value_is_empty() -> None:
    env = [
        {"name": "A"},
        {"name": "B", "value": None},
        {"name": "C", "value": "", "valueFrom": None},
    ]
    assert main_of(read(request_with(env=env))).env == (("A", ""), ("B", ""), ("C", ""))


def test_what_interlink_left_unresolved_is_resolved_from_the_request() -> None:
    request = request_with(
        env=[
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "mode"}}},
            {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "s", "key": "pw"}}},
            {
                "name": "NO_OBJECT",
                "valueFrom": {"secretKeyRef": {"name": "x", "key": "k", "optional": True}},
            },
            {
                "name": "NO_KEY",
                "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}},
            },
            {
                "name": "BOTH",
                "value": "v",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}},
            },
        ],
        resources={"limits": {"cpu": "1500m"}},
    )
    request["container"][0]["configMaps"] = [
        {"metadata": {"name": "c"}, "data": {"mode": "$(NAME)"}}
    ]
    request["container"][0]["secrets"] = [{"metadata": {"name": "s"}, "data": {"pw": "cHc="}}]
    assert dict(main_of(read(request)).env) == {
        "NAME": "train-0",
        "CPU": "2",
        "MODE": "$(NAME)",
        "PW": "pw",
        "BOTH": "v",
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "'s' has no key 'pw'"),
        ({"pw": "//8="}, "key 'pw' is not text, as a variable must be"),
        ({"pw": "AA=="}, "key 'pw' has a NUL character, which no variable can have"),
    ],
)
def test_a_secret_that_cannot_be_a_variable_is_refused(data: Request, message: str) -> None:
    request = request_with(
        env=[{"name": "PW", "valueFrom": {"secretKeyRef": {"name": "s", "key": "pw"}}}]
    )
    request["container"][0]["secrets"] = [{"metadata": {"name": "s"}, "data": data}]
    where = "pod.spec.containers[0].env[0].valueFrom.secretKeyRef"
    assert rejection(request) == f"{where}: {message}"


def test_an_empty_value_does_not_hide_where_the_value_comes_from() -> None:
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "", "valueFrom": source}]
    assert main_of(read(request_with(env=env))).env == (("A", "1"), ("B", "train-0"))


def test_of_two_objects_with_one_name_the_first_counts() -> None:
    request = make_request()
    request["container"][0]["configMaps"] = [
        {"metadata": {"name": "c"}, "data": {"k": "first"}},
        {"metadata": {"name": "c"}, "data": {"k": "second"}},
    ]
    assert read(request).config_maps["c"].data == {"k": b"first"}


def test_commands_are_expanded_with_the_variables() -> None:
    container = main_of(
        read(
            request_with(
                command=["sh", "$(A)"],
                args=["$(A)$$(A)", "$(NOPE)", "$$"],
                env=[{"name": "A", "value": "$(B)"}, {"name": "B", "value": "2"}],
            )
        )
    )
    assert container.command == ("sh", "$(B)")
    assert container.args == ("$(B)$(A)", "$(NOPE)", "$")
    assert container.env == (("A", "$(B)"), ("B", "2"))


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("/work", "/work"),
        ("work", "/work"),
        ("//a//b/./c/../d/", "/a/b/d"),
        ("/../x", "/x"),
        ("./x/..//y", "/y"),
    ],
)
def test_a_mount_path_is_made_absolute_and_normal(written: str, path: str) -> None:
    request = request_with(volumeMounts=[{"name": "work", "mountPath": written}])
    assert main_of(read(request)).mounts == (Mount("work", path),)


@pytest.mark.parametrize(
    ("written", "path"),
    [("a/b", "a/b"), ("a//b/./c/", "a/b/c"), (".", ""), ("", ""), ("..a", "..a")],
)
def test_a_sub_path_is_made_normal(written: str, path: str) -> None:
    mount = {"name": "work", "mountPath": "/w", "subPath": written, "readOnly": True}
    assert main_of(read(request_with(volumeMounts=[mount]))).mounts == (
        Mount("work", "/w", True, path),
    )


MOUNT = {"name": "work", "mountPath": "/w"}


@pytest.mark.parametrize(
    ("mounts", "message"),
    [
        ("x", "volumeMounts: must be a list, not a string"),
        (["x"], "volumeMounts[0]: must be an object, not a string"),
        ([{**MOUNT, "name": "x"}], "volumeMounts[0].name: the pod has no volume 'x'"),
        ([{**MOUNT, "name": None}], "volumeMounts[0].name: must be the name of a volume, not null"),
        ([{"name": "work"}], "volumeMounts[0].mountPath: must be a path, not null"),
        (
            [{**MOUNT, "mountPath": ""}],
            "volumeMounts[0].mountPath: must be a path below /, without ':'",
        ),
        (
            [{**MOUNT, "mountPath": "/./"}],
            "volumeMounts[0].mountPath: must be a path below /, without ':'",
        ),
        (
            [{**MOUNT, "mountPath": "/a:b"}],
            "volumeMounts[0].mountPath: must be a path below /, without ':'",
        ),
        (
            [{**MOUNT, "mountPath": "/a\0"}],
            "volumeMounts[0].mountPath: must not contain a NUL character",
        ),
        (
            [MOUNT, {**MOUNT, "mountPath": "w/"}],
            "volumeMounts[1].mountPath: /w is mounted on twice",
        ),
        ([{**MOUNT, "readOnly": 0}], "volumeMounts[0].readOnly: must be a boolean, not a number"),
        (
            [{**MOUNT, "subPath": "/a"}],
            "volumeMounts[0].subPath: must be a path inside the volume, without '..'",
        ),
        (
            [{**MOUNT, "subPath": "a/../b"}],
            "volumeMounts[0].subPath: must be a path inside the volume, without '..'",
        ),
        ([{**MOUNT, "subPath": 1}], "volumeMounts[0].subPath: must be a string, not a number"),
        (
            [{**MOUNT, "subPath": "a", "subPathExpr": "b"}],
            "volumeMounts[0]: must not have both subPath and subPathExpr",
        ),
        (
            [{**MOUNT, "readOnly": True, "recursiveReadOnly": "Enabled"}],
            "volumeMounts[0].recursiveReadOnly: "
            "not supported: what is mounted below stays as it is",
        ),
        (
            [{**MOUNT, "subPathExpr": "$(NOPE)"}],
            "volumeMounts[0].subPathExpr: variable 'NOPE' is not set",
        ),
        (
            [{**MOUNT, "subPathExpr": "$(UP)"}],
            "volumeMounts[0].subPathExpr: must be a path inside the volume, without '..'",
        ),
    ],
)
def test_a_bad_mount_is_refused(mounts: object, message: str) -> None:
    request = request_with(volumeMounts=mounts, env=[{"name": "UP", "value": "../up"}])
    assert rejection(request) == f"pod.spec.containers[0].{message}"


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ([], ": must be an object, not a list"),
        ({}, ": must have exactly one of exec, httpGet, tcpSocket"),
        (
            {"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}},
            ": must have exactly one of exec, httpGet, tcpSocket",
        ),
        (
            {"grpc": {"port": 1}},
            ".grpc: grpc probes are not supported; use exec, httpGet or tcpSocket",
        ),
        ({"exec": {}}, ".exec.command: must not be empty"),
        ({"exec": {"command": [1]}}, ".exec.command[0]: must be a string, not a number"),
        ({"httpGet": {"port": 0}}, ".httpGet.port: must be from 1 to 65535"),
        ({"httpGet": {"port": 65536}}, ".httpGet.port: must be from 1 to 65535"),
        (
            {"httpGet": {"port": True}},
            ".httpGet.port: must be a number or the name of a port, not a boolean",
        ),
        ({"httpGet": {}}, ".httpGet.port: must be a number or the name of a port, not null"),
        ({"httpGet": {"port": "web"}}, ".httpGet.port: the container has no port 'web'"),
        (
            {"httpGet": {"port": 1, "scheme": "ftp"}},
            ".httpGet.scheme: must be HTTP or HTTPS, not 'ftp'",
        ),
        (
            {"httpGet": {"port": 1, "path": "/a\n"}},
            ".httpGet.path: must not contain control characters",
        ),
        (
            {"httpGet": {"port": 1, "httpHeaders": [{"name": "a b"}]}},
            ".httpGet.httpHeaders[0].name: must be the name of a header",
        ),
        (
            {"httpGet": {"port": 1, "httpHeaders": [{"name": "a", "value": "b\r\nc"}]}},
            ".httpGet.httpHeaders[0].value: must not contain control characters",
        ),
        (
            {"tcpSocket": {"port": 1}, "periodSeconds": -1},
            ".periodSeconds: must be from 0 to 2147483647",
        ),
        (
            {"tcpSocket": {"port": 1}, "timeoutSeconds": "1"},
            ".timeoutSeconds: must be a whole number, not a string",
        ),
        (
            {"tcpSocket": {"port": 1}, "successThreshold": 2},
            ".successThreshold: must be 1 in a livenessProbe",
        ),
    ],
)
def test_a_bad_probe_is_refused(probe: object, message: str) -> None:
    expected = f"pod.spec.containers[0].livenessProbe{message}"
    assert rejection(request_with(livenessProbe=probe)) == expected


def test_a_probe_has_the_defaults_of_kubernetes_where_it_says_zero() -> None:
    probe = {"httpGet": {"port": "8080", "path": "x"}, "periodSeconds": 0, "timeoutSeconds": 0}
    container = main_of(read(request_with(readinessProbe=probe, ports=[{"containerPort": 1}])))
    assert container.readiness == Probe(Action("http", port=8080, path="/x"))


def test_an_http_probe_is_read_in_full() -> None:
    probe = {
        "httpGet": {
            "port": "web",
            "scheme": "HTTPS",
            "host": "h",
            "httpHeaders": [{"name": "A", "value": "b c"}],
        },
        "terminationGracePeriodSeconds": 5,
        "successThreshold": 1,
    }
    ports = [{"containerPort": 81}, {"name": "web", "containerPort": 82}]
    container = main_of(read(request_with(livenessProbe=probe, ports=ports)))
    action = Action("http", scheme="https", host="h", port=82, headers=(("A", "b c"),))
    assert container.liveness == Probe(action, grace_period_s=5)


@pytest.mark.parametrize(
    ("lifecycle", "message"),
    [
        ([], ": must be an object, not a list"),
        ({"preStop": []}, ".preStop: must be an object, not a list"),
        ({"preStop": {}}, ".preStop: must have exactly one of exec, httpGet, sleep"),
        ({"stopSignal": "SIGUSR1"}, ".stopSignal: not supported; it is always SIGTERM"),
        (
            {"preStop": {"tcpSocket": {"port": 1}}},
            ".preStop: must have exactly one of exec, httpGet, sleep",
        ),
        (
            {"postStart": {"sleep": {"seconds": "1"}}},
            ".postStart.sleep.seconds: must be a whole number, not a string",
        ),
    ],
)
def test_a_bad_hook_is_refused(lifecycle: object, message: str) -> None:
    expected = f"pod.spec.containers[0].lifecycle{message}"
    assert rejection(request_with(lifecycle=lifecycle)) == expected


def test_what_a_container_says_of_its_security_wins_over_the_pod() -> None:
    request = request_with(
        securityContext={
            "runAsUser": 0,
            "runAsNonRoot": False,
            "privileged": True,
            "readOnlyRootFilesystem": True,
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
        }
    )
    pod_wide = {"runAsUser": 5, "runAsGroup": 6, "runAsNonRoot": True, "fsGroup": 7}
    request["pod"]["spec"]["securityContext"] = pod_wide
    assert main_of(read(request)).security == Security(
        run_as_user=0,
        run_as_group=6,
        run_as_non_root=False,
        privileged=True,
        read_only_root=True,
        add_capabilities=("NET_ADMIN",),
        drop_capabilities=("ALL",),
    )


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1", "IfNotPresent"),
        ("r:5000/busybox", "Always"),
        ("r:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:aa", "IfNotPresent"),
        ("busybox:latest@sha256:aa", "Always"),
    ],
)
def test_the_pull_policy_follows_the_tag_unless_it_is_given(image: str, policy: str) -> None:
    assert main_of(read(request_with(image=image))).pull_policy == policy
    given = request_with(image=image, imagePullPolicy="Never")
    assert main_of(read(given)).pull_policy == "Never"


@pytest.mark.parametrize(
    ("spec", "hostname"),
    [({}, "train-0"), ({"hostname": "h"}, "h")],
)
def test_the_host_name_is_the_pods_unless_it_is_given(spec: Request, hostname: str) -> None:
    assert read(make_request(**spec)).hostname == hostname


def test_a_long_pod_name_is_cut_to_a_host_name() -> None:
    request = make_request()
    request["pod"]["metadata"]["name"] = "x" * 62 + "." + "y" * 20
    assert read(request).hostname == "x" * 62


def test_containers_that_run_in_the_cluster_are_left_out() -> None:
    request = make_request(
        containers=[{"name": "main", "image": "i"}, {"name": "local"}],
        initContainers=[{"name": "first", "image": "i"}, {"name": "second"}, {"name": "third"}],
    )
    request["pod"]["metadata"]["annotations"] = {
        "interlink.eu/disable-offload-containers": "local, nobody",
        "interlink.eu/disable-offload-init-containers": "second,third",
    }
    assert [container.name for container in read(request).containers] == ["first", "main"]


def test_a_pod_with_nothing_left_to_run_is_refused() -> None:
    request = make_request()
    request["pod"]["metadata"]["annotations"] = {"interlink.eu/disable-offload-containers": "main"}
    assert rejection(request) == "pod.spec.containers: must have a container that is to run here"


def test_zero_values_of_the_job_configuration_mean_not_set() -> None:
    request = make_request()
    request["jobConfig"] = {
        "SingularityHubProxy": {"server": "", "master_token": "", "cache_validity_seconds": 0},
        "ApptainerOptions": {
            "executable": "/usr/bin/apptainer",
            "fakeroot": False,
            "unsquash": True,
        },
        "Volumes": {"additional_directories_in_path": None, "deep": {"a": {"b": ""}}, "fuse": 0},
    }
    request["jobScript"] = "#!/bin/sh\n"
    pod = read(request)
    assert pod.job_config == {
        "ApptainerOptions": {"executable": "/usr/bin/apptainer", "unsquash": True}
    }
    assert pod.job_script == "#!/bin/sh\n"


@pytest.mark.parametrize(
    ("kind", "thing", "message"),
    [
        ("configMaps", 1, ": must be a list, not a number"),
        ("configMaps", [1], "[0]: must be an object, not a number"),
        ("configMaps", [{}], "[0].metadata.name: must be a name, not null"),
        (
            "configMaps",
            [{"metadata": {"name": "c"}, "data": []}],
            "[0].data: must be an object, not a list",
        ),
        (
            "configMaps",
            [{"metadata": {"name": "c"}, "data": {"k": 1}}],
            "[0].data['k']: must be a string, not a number",
        ),
        (
            "configMaps",
            [{"metadata": {"name": "c"}, "data": {"../k": ""}}],
            "[0].data: has a key that is not a file name: ../k",
        ),
        (
            "configMaps",
            [{"metadata": {"name": "c"}, "data": {"..": ""}}],
            "[0].data: has a key that is not a file name: ..",
        ),
        (
            "configMaps",
            [{"metadata": {"name": "c"}, "data": {"": ""}}],
            "[0].data: has a key that is not a file name: an empty one",
        ),
        (
            "configMaps",
            [{"metadata": {"name": "c"}, "binaryData": {"k": "*"}}],
            "[0].binaryData['k']: is not valid base64",
        ),
        (
            "secrets",
            [{"metadata": {"name": "s"}, "data": {"k": "QQ"}}],
            "[0].data['k']: is not valid base64",
        ),
        (
            "secrets",
            [{"metadata": {"name": "s"}, "data": {"k": "QQ==QQ=="}}],
            "[0].data['k']: is not valid base64",
        ),
        (
            "secrets",
            [{"metadata": {"name": "s"}, "data": {"k": "QU*JD"}}],
            "[0].data['k']: is not valid base64",
        ),
        (
            "secrets",
            [{"metadata": {"name": "s"}, "data": {"k": "é==="}}],
            "[0].data['k']: is not valid base64",
        ),
        (
            "secrets",
            [{"metadata": {"name": "s"}, "type": 1}],
            "[0].type: must be a string, not a number",
        ),
        (
            "projectedvolumemaps",
            [{"metadata": {"name": "p"}, "data": {"/etc/x": ""}}],
            "[0].data: has a path that leaves the volume: /etc/x",
        ),
        (
            "projectedvolumemaps",
            [{"metadata": {"name": "p"}, "data": {"a/../../x": ""}}],
            "[0].data: has a path that leaves the volume: a/../../x",
        ),
    ],
)
def test_bad_contents_are_refused(kind: str, thing: object, message: str) -> None:
    request = make_request()
    request["container"][0][kind] = thing
    assert rejection(request) == f"request.container[0].{kind}{message}"


def test_secrets_may_come_as_text_too() -> None:
    request = make_request()
    secret = {
        "metadata": {"name": "s"},
        "data": {"a": "QQ==", "n": None, "lines": "QUJD\nREVG\n"},
        "stringData": {"a": "é"},
    }
    request["container"][0]["secrets"] = [secret]
    assert read(request).secrets["s"].data == {"a": "é".encode(), "n": b"", "lines": b"ABCDEF"}


def test_nul_is_welcome_in_files_but_surrogates_are_not() -> None:
    request = make_request()
    config_map = {"metadata": {"name": "c"}, "data": {"k": "a\0b"}}
    request["container"][0]["configMaps"] = [config_map]
    assert read(request).config_maps["c"].data == {"k": b"a\0b"}
    config_map["data"]["k"] = "\udfff"
    expected = "request.container[0].configMaps[0].data.k: is not valid Unicode (a lone surrogate)"
    assert rejection(request) == expected


def test_text_that_only_looks_escaped_is_taken() -> None:
    assert main_of(read(request_with(args=["\\u0000", "\\ud800", "😀"]))).args == (
        "\\u0000",
        "\\ud800",
        "😀",
    )


def test_managed_fields_and_unknown_fields_are_ignored() -> None:
    request = make_request(ephemeralContainers=[{"name": "main"}], unknownField=[1])
    request["pod"]["metadata"]["managedFields"] = [{"f:\0": 1}]
    request["unknown"] = {"a": 1}
    assert read(request) == read(make_request())


def leaves(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document, the inner nodes too."""
    yield path
    if isinstance(value, dict):
        for key, entry in value.items():
            if key != "managedFields":
                yield from leaves(entry, (*path, key))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from leaves(entry, (*path, index))


@contextmanager
def replaced(document: Any, path: tuple[Any, ...], value: object) -> Iterator[None]:
    """The document with another value at the path, for as long as it takes."""
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    kept = holder[path[-1]]
    holder[path[-1]] = value
    yield
    holder[path[-1]] = kept


def without_managed_fields(document: Any) -> Any:
    if isinstance(document, dict):
        return {
            key: without_managed_fields(value)
            for key, value in document.items()
            if key not in ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
        }
    if isinstance(document, list):
        return [without_managed_fields(value) for value in document]
    return document


WRONG: list[object] = [None, True, -1, 1.5, "", "x\ny", "\0\ud800", "$(", [], [None], {}, {"x": {}}]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_wrong_type_anywhere_gives_a_pod_or_one_line(wrong: object) -> None:
    document = without_managed_fields(recorded("0.6.2", "everything"))
    refused = 0
    for path in list(leaves(document))[1:]:
        with replaced(document, path, wrong):
            body = json.dumps(document).encode()
        try:
            assert isinstance(read_create_request(body), Pod), path
        except PodRejected as error:
            refused += 1
            assert str(error).isprintable(), path
    assert refused > 10
