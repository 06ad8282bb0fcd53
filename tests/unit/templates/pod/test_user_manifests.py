"""Plain manifests, as an API server and a kubelet would see them."""

from __future__ import annotations

import json
from typing import Optional

import pytest

from templates.common.errors import PodRejected
from templates.common.names import check_uid
from templates.pod.model import MAIN, Container, Pod
from templates.pod.user_manifests import read_manifests

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: train-0
spec:
  containers:
  - name: main
    image: busybox
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: sweep, namespace: team-a}
spec:
  activeDeadlineSeconds: 100
  template:
    metadata: {labels: {app: sweep}}
    spec:
      restartPolicy: Never
      activeDeadlineSeconds: 200
      containers: [{name: main, image: "busybox:1"}]
"""
SETTINGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast, a.yaml: "k: v"}
binaryData: {blob: AAEC}
"""
CREDS = """
apiVersion: v1
kind: Secret
metadata: {name: creds}
type: Opaque
stringData: {password: "p$(A)"}
data: {user: YW5u}
"""


def read(*texts: str) -> Pod:
    return read_manifests([(f"{index}.yaml", text) for index, text in enumerate(texts)])


def rejection(*texts: str) -> str:
    with pytest.raises(PodRejected) as caught:
        read(*texts)
    assert str(caught.value).isprintable()
    return str(caught.value)


def pod_with(env: Optional[str] = None, env_from: Optional[str] = None, rest: str = "") -> str:
    lines = [POD.rstrip()]
    if env is not None:
        lines.append(f"    env: {env}")
    if env_from is not None:
        lines.append(f"    envFrom: {env_from}")
    return "\n".join([*lines, rest, ""])


def env_of(*texts: str) -> dict[str, str]:
    return dict(read(*texts).containers[-1].env)


def test_a_pod_has_the_defaults_of_the_api_server() -> None:
    pod = read(POD)
    assert pod == Pod(
        "train-0",
        "default",
        pod.uid,
        {},
        {},
        (Container("main", MAIN, "busybox", pull_policy="Always"),),
        (),
        hostname="train-0",
    )
    assert check_uid("uid", pod.uid)


def test_the_uid_depends_on_the_content_alone() -> None:
    assert read(POD).uid == read(POD).uid
    assert read(POD).uid == read("# a comment\n" + POD).uid
    assert read(POD).uid != read(POD.replace("busybox", "busybox:1")).uid
    given = "6a1f0c1e-7f0b-4a38-9a36-2f4c9f6f0a11"
    assert read(POD.replace("train-0", f"train-0\n  uid: {given}")).uid == given


def test_json_keeps_the_line_breaks_that_yaml_folds() -> None:
    odd = "a\x85b\u2028c\u2029d"
    container = {"name": "main", "image": "busybox", "args": [odd]}
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    text = json.dumps(pod, ensure_ascii=False)
    other = json.dumps({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": odd}})
    assert read_manifests([("p.json", f"{text}\n---\n{other}\n")]).containers[0].args == (odd,)


def test_json_is_yaml() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    assert read(json.dumps(pod)).name == "a"


def test_a_list_is_its_items() -> None:
    items = [{"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}}]
    pod = read(POD, json.dumps({"kind": "List", "items": items}))
    assert pod.config_maps["c"].data == {"k": b"v"}


def test_a_job_gives_its_pod() -> None:
    pod = read(JOB)
    assert pod.name[:6] == "sweep-"
    assert len(pod.name) == 11
    assert set(pod.name[6:]) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert pod.name == read(JOB).name
    assert pod.namespace == "team-a"
    assert pod.labels == {"app": "sweep"}
    assert pod.restart_policy == "Never"
    assert pod.containers[0].pull_policy == "IfNotPresent"


@pytest.mark.parametrize(
    ("outer", "inner", "deadline_s"),
    [
        ("100", "200", 100),
        ("200", "100", 100),
        ("null", "5", 5),
        ("5", "null", 5),
        ("null", "null", None),
    ],
)
def test_the_shorter_deadline_of_a_job_counts(
    outer: str, inner: str, deadline_s: Optional[int]
) -> None:
    text = JOB.replace("Seconds: 100", f"Seconds: {outer}").replace(
        "Seconds: 200", f"Seconds: {inner}"
    )
    assert read(text).deadline_s == deadline_s


def test_a_long_name_of_a_job_leaves_room_for_the_suffix() -> None:
    name = read(JOB.replace("name: sweep,", f"name: {'x' * 63},")).name
    assert len(name) == 63
    assert name.startswith("x" * 58)


def test_a_generated_name_is_completed() -> None:
    assert read(POD.replace("name: train-0", "generateName: train-")).name[:6] == "train-"


def test_config_maps_and_secrets_are_decoded() -> None:
    pod = read(POD + "---" + SETTINGS + "---" + CREDS)
    assert pod.config_maps["settings"].data == {
        "mode": b"fast",
        "a.yaml": b"k: v",
        "blob": b"\x00\x01\x02",
    }
    assert pod.secrets["creds"].data == {"user": b"ann", "password": b"p$(A)"}
    assert pod.secrets["creds"].type == "Opaque"
    assert pod.projected == {}


def test_objects_of_other_namespaces_are_ignored() -> None:
    other = SETTINGS.replace("name: settings", "name: settings, namespace: other")
    same = CREDS.replace("name: creds", "name: creds, namespace: default")
    pod = read(POD, other, same)
    assert pod.config_maps == {}
    assert set(pod.secrets) == {"creds"}


def test_objects_of_other_kinds_are_ignored() -> None:
    assert read(POD, "kind: Service\nspec: {x: 1}", "", "---\n---\n").name == "train-0"


def test_values_are_expanded_with_the_variables_above_them() -> None:
    env = """
    - {name: A, value: "1"}
    - {name: B, value: "$(A)-$(C)-$$(A)"}
    - {name: C, value: "3"}
    - {name: A, value: "$(A)$(A)"}
    - {name: D, value: "$(A)"}
    - {name: EMPTY, value: ""}
    - {name: ALSO_EMPTY}"""
    assert env_of(pod_with(env)) == {
        "A": "11",
        "B": "1-$(C)-$(A)",
        "C": "3",
        "D": "11",
        "EMPTY": "",
        "ALSO_EMPTY": "",
    }


def test_values_come_from_everywhere() -> None:
    env = """
    - {name: MODE, valueFrom: {configMapKeyRef: {name: settings, key: mode}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: creds, key: password}}}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1}}}
    - {name: NONE, valueFrom: {configMapKeyRef: {name: nosuch, key: k, optional: true}}}
    - {name: NONE, valueFrom: {secretKeyRef: {name: creds, key: k, optional: true}}}
    - {name: ALL, value: "$(POD)/$(PASSWORD)"}"""
    rest = "    resources: {limits: {memory: 1Gi, cpu: 1.5}}"
    assert env_of(pod_with(env, rest=rest), SETTINGS, CREDS) == {
        "MODE": "fast",
        "PASSWORD": "p$(A)",
        "POD": "train-0",
        "MEMORY": "1024",
        "CPU": "2",
        "ALL": "train-0/p$(A)",
    }


def test_whole_objects_become_variables_and_single_ones_win() -> None:
    text = pod_with(
        '[{name: mode, value: "$(S_mode)!"}, {name: user, value: bob}]',
        "[{configMapRef: {name: settings}, prefix: S_}, {configMapRef: {name: settings}},"
        " {secretRef: {name: creds}}, {secretRef: {name: nosuch, optional: true}}]",
    )
    assert env_of(text, SETTINGS, CREDS) == {
        "S_mode": "fast",
        "S_a.yaml": "k: v",  # binaryData is no variable
        "mode": "fast!",
        "a.yaml": "k: v",
        "password": "p$(A)",
        "user": "bob",
    }


def test_of_two_whole_objects_the_later_one_wins() -> None:
    later = SETTINGS.replace("name: settings", "name: later").replace("mode: fast", "mode: slow")
    source = "[{configMapRef: {name: settings}}, {configMapRef: {name: later}}]"
    assert env_of(pod_with(None, source), SETTINGS, later)["mode"] == "slow"


def test_of_two_objects_with_one_name_the_later_one_counts() -> None:
    later = SETTINGS.replace("mode: fast", "mode: slow")
    assert read(POD, SETTINGS, later).config_maps["settings"].data["mode"] == b"slow"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("[{name: A, value: 1}]", "env[0].value: must be a string, not a number"),
        ("[{name: A, value: yes}]", "env[0].value: must be a string, not a boolean"),
        ("[{value: x}]", "env[0].name: must be a name without '=' and NUL"),
        ("[1]", "env[0]: must be an object, not a number"),
        (
            "[{name: A, valueFrom: {configMapKeyRef: {name: nosuch, key: k}}}]",
            "env[0].valueFrom.configMapKeyRef: there is no ConfigMap 'nosuch' with the pod",
        ),
        (
            "[{name: A, valueFrom: {configMapKeyRef: {name: settings, key: k}}}]",
            "env[0].valueFrom.configMapKeyRef: 'settings' has no key 'k'",
        ),
        (
            "[{name: A, valueFrom: {configMapKeyRef: {name: settings, key: blob}}}]",
            "env[0].valueFrom.configMapKeyRef: 'settings' has no key 'blob'",
        ),
        (
            "[{name: A, valueFrom: {secretKeyRef: {name: nosuch, key: k}}}]",
            "env[0].valueFrom.secretKeyRef: there is no Secret 'nosuch' with the pod",
        ),
        (
            "[{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, containerName: x}}}]",
            "env[0].valueFrom.resourceFieldRef.containerName: the pod has no container 'x'",
        ),
    ],
)
def test_a_bad_variable_is_refused(env: str, message: str) -> None:
    assert rejection(pod_with(env), SETTINGS) == f"pod.spec.containers[0].{message}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "[{configMapRef: {name: nosuch}}]",
            "envFrom[0].configMapRef: there is no ConfigMap 'nosuch' with the pod",
        ),
        (
            "[{secretRef: {name: nosuch}}]",
            "envFrom[0].secretRef: there is no Secret 'nosuch' with the pod",
        ),
        ("[{}]", "envFrom[0]: must have either configMapRef or secretRef"),
        (
            "[{prefix: a=, secretRef: {name: nosuch}}]",
            "envFrom[0].prefix: must be a name without '=' and NUL",
        ),
        ("{}", "envFrom: must be a list, not an object"),
    ],
)
def test_a_bad_source_of_variables_is_refused(source: str, message: str) -> None:
    assert rejection(pod_with(None, source)) == f"pod.spec.containers[0].{message}"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "manifests: must hold exactly one Pod or Job, not 0"),
        ([SETTINGS], "manifests: must hold exactly one Pod or Job, not 0"),
        ([POD, JOB], "manifests: must hold exactly one Pod or Job, not 2"),
        (["a: ["], "0.yaml: is not YAML: did not find expected node content in line 2, column 1"),
        (
            [f"{POD}kind: Job"],
            "0.yaml: is not YAML: the key kind stands there twice in line 10, column 1",
        ),
        (
            ['{"kind": "Pod",\n "kind": "Pod"}'],
            "0.yaml: is not YAML: the key kind stands there twice in line 2, column 2",
        ),
        (["x: !!python/object:os.system {}"], None),
        (["a: \0"], None),
        (["just text"], "0.yaml: must be a Kubernetes object, not a string"),
        (["[1]"], "0.yaml: must be a Kubernetes object, not a list"),
        (["kind: 1"], "0.yaml.kind: must be a string, not a number"),
        (["kind: List\nitems: 1"], "0.yaml.items: must be a list, not a number"),
        (
            ["kind: Pod"],
            "pod.metadata.name: must be lower-case letters, digits, dashes and dots, at most 253",
        ),
        (
            ["kind: Job"],
            "job.metadata.name: must be lower-case letters, digits, dashes and dots, at most 253",
        ),
        (["kind: Pod\nspec: 1\nmetadata: {name: a}"], "pod.spec: must be an object, not a number"),
        (["&a [*a]"], "0.yaml: is nested too deeply or refers to itself"),
        (["a: !!set {b}"], "0.yaml: has a value that JSON does not know: set"),
        (["{1.5: b}"], "0.yaml: has a key that is not text: 1.5"),
        (
            [JOB.replace("Never", "Always")],
            "job.spec.template.spec.restartPolicy: must be Never or OnFailure in a Job",
        ),
        (
            [JOB.replace("      restartPolicy: Never\n", "")],
            "job.spec.template.spec.restartPolicy: must be Never or OnFailure in a Job",
        ),
        (
            [JOB.replace("image: ", "imag: ")],
            "job.spec.template.spec.containers[0].image: must be an image without spaces",
        ),
        (
            [POD.replace("busybox", '"a\\0"')],
            "pod.spec.containers[0].image: must not contain a NUL character",
        ),
        (
            [POD, SETTINGS.replace("fast", "5")],
            "1.yaml: ConfigMap settings.data['mode']: must be a string, not a number",
        ),
        (
            [POD, CREDS.replace("YW5u", "YW5")],
            "1.yaml: Secret creds.data['user']: is not valid base64",
        ),
        ([POD, "kind: Secret"], "1.yaml: Secret.metadata.name: must be a name, not null"),
    ],
)
def test_bad_manifests_are_refused_in_one_line(texts: list[str], message: Optional[str]) -> None:
    found = rejection(*texts)
    if message is None:
        assert found.startswith("0.yaml: is not YAML: ")
    else:
        assert found == message


def test_a_small_file_cannot_grow_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert rejection("\n".join(lines)) == "0.yaml: is nested too deeply or refers to itself"


def test_dates_and_times_stay_text_and_numbers_stay_numbers() -> None:
    text = POD.replace(
        "name: train-0", "name: train-0\n  annotations: {date: 2026-08-01, time: 12:30:45, on: 'x'}"
    )
    rest = "    args: [2026-08-01T10:00:00Z, 1:30]\n  terminationGracePeriodSeconds: 0x10"
    pod = read(text + rest)
    assert pod.annotations == {"date": "2026-08-01", "time": "12:30:45", "true": "x"}
    assert pod.containers[0].args == ("2026-08-01T10:00:00Z", "1:30")
    assert pod.grace_period_s == 16


def test_keys_of_a_config_map_may_look_like_numbers() -> None:
    settings = SETTINGS.replace("mode: fast", "1: one")
    assert read(POD, settings).config_maps["settings"].data["1"] == b"one"


def test_commands_and_sub_paths_are_expanded() -> None:
    rest = """
    command: [sh, $(A), $$(A)]
    volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(A)/x}]
  volumes: [{name: v}]"""
    container = read(pod_with('[{name: A, value: "1"}]', rest=rest)).containers[0]
    assert container.command == ("sh", "1", "$(A)")
    assert container.mounts[0].sub_path == "1/x"


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "? " * 100_000, "- " * 100_000])
def test_a_manifest_that_is_nested_too_deeply_is_refused(text: str) -> None:
    """PyYAML's loader in C calls itself for each level, and would end the process."""
    assert rejection(text) == "0.yaml: is nested too deeply or refers to itself"


@pytest.mark.parametrize("value", ["[*a{}, *a{}]", "{{<<: [*a{}, *a{}]}}", "{{x: *a{}, y: *a{}}}"])
def test_aliases_of_aliases_are_refused_before_they_are_made(value: str) -> None:
    lines = [f"a{i}: &a{i} {value.format(i - 1, i - 1)}" for i in range(1, 60)]
    text = "\n".join(["a0: &a0 {x: 1}", *lines])
    assert rejection(text) == "0.yaml: is nested too deeply or refers to itself"
