"""Hostile pods through a real bash: every text arrives to the byte, or the pod is refused.

And nothing is executed, expanded or written that the pod did not say.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from templates.cli.render_pod import write_job
from templates.common.errors import PodRejected
from templates.pod.create_request import read_create_request
from templates.pod.model import Pod
from templates.pod.user_manifests import read_manifests
from templates.resolve.annotations import POD_IP
from templates.site.build_config import RUNTIMES, BuildConfig, Rules, Runtime
from templates.translation.build import build
from tests.jobs.hostile import CANARY, COMMANDS, DUMPER, ENV_NAMES, SHAPES, Case, Expected, cases
from tests.jobs.web import web_server
from tests.support.script_runner import Finished, Site, config_map, pod, sh

BATCH = 4  # pods that run at once, as their scripts wait more than they work
FAST = 10  # batches
SLOW_SEEDS = range(20)
SLOW = 125  # batches of each seed: 20 * 125 * 4 are 10,000 pods
# What the job, its runtime and the kernel add to a container's environment.
ADDED = frozenset("HOSTNAME INTERLINK_CONTAINER HOME PATH USER SHLVL PWD OLDPWD _".split())
IN_A_JOB = frozenset(
    (
        "job.sh",
        "logs",
        "records",
        "spool",
        "started",
        "volumes",
        "hosts",
        "secret",
        "run",
        "scratch",
    )
)


class Sandbox:
    """The node that hostile pods run on: everything that they could reach by mistake, and empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = Site("host", folder)
        for name in ("home", "tmp", "bin", "answers"):
            (folder / name).mkdir()
        canary = folder / "bin" / CANARY
        canary.write_text('#!/bin/sh\n: >>"${0%/*}/../fired"\n')
        canary.chmod(0o755)
        self.root = os.listdir("/")

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
        }

    def check(self) -> None:
        """That nothing has left a trace."""
        assert not (self.folder / "fired").exists(), "a canary was executed"
        assert os.listdir(self.folder / "home") == []
        assert os.listdir(self.folder / "tmp") == []
        assert os.listdir("/") == self.root


def read(case: Case) -> Pod:
    if case.is_request:
        return read_create_request(case.text.encode())
    return read_manifests([("pod.json", case.text)])


def run_all(sandbox: Sandbox, batch: list[Case]) -> Counter[str]:
    """Run the pods at once and check each; how many ran and how many were refused."""
    seen: Counter[str] = Counter()
    started = []
    for case in batch:
        Path(case.answer).unlink(missing_ok=True)
        try:
            running = sandbox.site.start(read(case), environment=sandbox.environment)
        except PodRejected as error:
            assert str(error).isprintable(), repr(str(error))
            seen["refused"] += 1
        else:
            started.append((case, running))
    ended = [(case, running.wait()) for case, running in started]
    for case, done in ended:
        seen["failed" if check(case, done) else "ran"] += 1
        shutil.rmtree(done.directory.parent)
    sandbox.check()
    return seen


def check(case: Case, done: Finished) -> bool:
    """All that has to hold when a pod has run; returns whether it failed as it may."""
    assert {path.name for path in done.directory.iterdir()} <= IN_A_JOB - {
        "secret",
        "run",
        "scratch",
    }
    logs = {path.name.removesuffix(".idx") for path in (done.directory / "logs").iterdir()}
    assert logs <= {f"{name}.0.log" for name in case.containers}
    if case.may_fail and done.code != 0:
        return True
    assert done.output == ""
    assert done.code == 0, [done.state, *(done.log(name) for name in case.containers)]
    for name, expected in case.containers.items():
        compare(ast.literal_eval(done.log(name)), expected)
    if case.hook:
        compare(ast.literal_eval(Path(case.answer).read_text()), case.hook)
    if case.message is not None:
        end = done.state.containers[next(iter(case.containers))].end
        assert end is not None
        assert end.message == case.message.encode()[:4096].decode(errors="replace")
    return False


def compare(told: dict[str, Any], expected: Expected) -> None:
    assert told["args"] == [arg.encode() for arg in expected.args]
    env = dict(entry.split(b"=", 1) for entry in told["env"])
    wanted = {name.encode(): value.encode() for name, value in expected.env.items()}
    assert {name: env.get(name) for name in wanted} == wanted
    assert {name.decode() for name in env.keys() - wanted.keys()} <= ADDED
    assert told["cwd"] == expected.cwd.encode()
    assert told["stdin"] == ""
    for path, tree in expected.trees.items():
        assert told["trees"][path] == {name.encode(): value for name, value in tree.items()}


def property_of(sandbox: Sandbox, count: int, **options: Any) -> Any:
    """The test of ``count`` batches; each pod of a batch may write to a folder of its own."""
    seen: Counter[str] = Counter()
    every = st.tuples(*(cases(sandbox.folder / "answers" / str(i)) for i in range(BATCH)))
    for index in range(BATCH):
        (sandbox.folder / "answers" / str(index)).mkdir()

    @settings(
        max_examples=count,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        **options,
    )
    @given(every)
    def test(batch: tuple[Case, ...]) -> None:
        seen.update(run_all(sandbox, list(batch)))

    return test, seen


@pytest.fixture
def sandbox(folder: Path) -> Sandbox:
    return Sandbox(folder)


def test_hostile_texts_arrive_to_the_byte_or_the_pod_is_refused(sandbox: Sandbox) -> None:
    test, seen = property_of(sandbox, FAST, derandomize=True)
    test()
    assert seen["ran"] > seen.total() / 3, seen


@pytest.mark.slow
@pytest.mark.parametrize("number", SLOW_SEEDS)
def test_ten_thousand_hostile_pods(sandbox: Sandbox, number: int) -> None:
    test, seen = property_of(sandbox, SLOW)
    seed(number)(test)()
    assert seen["ran"] > seen.total() / 3, seen


def test_variables_that_bash_and_the_script_have_a_use_for_arrive(sandbox: Sandbox) -> None:
    entries = [
        {"name": name, "value": f"{name} $(nobody) '\n"} for name in ENV_NAMES if name != "PATH"
    ]
    env = {entry["name"]: entry["value"] for entry in entries}
    container = {"command": [*DUMPER, b"{}".hex()], "env": entries}
    done = sandbox.site.run(pod(container), environment=sandbox.environment)
    assert done.ends() == {"c0": 0}, done.log("c0")
    compare(ast.literal_eval(done.log("c0")), Expected([], env, "/", {}))


def test_http_probes_ask_for_just_what_the_pod_says(sandbox: Sandbox) -> None:
    texts = [text for text in (*COMMANDS, *SHAPES) if text.isprintable() and len(text) < 1000]
    headers = [{"name": f"X-{i}", "value": text} for i, text in enumerate(texts)]
    path = "/" + "".join(texts)
    with web_server() as web:
        get = {"port": web.port, "path": path, "httpHeaders": headers}
        probe = {"httpGet": get, "periodSeconds": 1, "timeoutSeconds": 10}
        main = sh("sleep 600", startupProbe=probe)
        body = json.dumps(pod(main, terminationGracePeriodSeconds=1), ensure_ascii=False)
        running = sandbox.site.start(body, environment=sandbox.environment)
        running.until(lambda state: any(c.begun for c in state.containers.values()))
        running.terminate()
        running.wait()
    wanted = [f"GET {path} HTTP/1.1", *(f"{h['name']}: {h['value']}" for h in headers)]
    lines = web.requests[0].decode().split("\r\n")
    assert [line for line in lines if line in wanted] == wanted
    sandbox.check()


@pytest.mark.parametrize("host", ["$(X)", "`X`", "a/../../../../X", "-x", "; X", "::1 X"])
def test_the_host_of_a_probe_is_only_a_host(sandbox: Sandbox, host: str) -> None:
    host = host.replace("X", CANARY)
    tcp = {"tcpSocket": {"host": host, "port": 1}, "failureThreshold": 1, "timeoutSeconds": 5}
    http = {"httpGet": {"host": host, "port": 1, "scheme": "HTTPS"}, "timeoutSeconds": 5}
    running = sandbox.site.start(
        pod(
            sh("sleep 600", livenessProbe=tcp, readinessProbe=http),
            terminationGracePeriodSeconds=1,
        ),
        environment=sandbox.environment,
    )
    assert running.wait().ends()["c0"] != 0
    sandbox.check()


def everything(texts: list[str]) -> str:
    """One pod with all the texts wherever texts are free: YAML in the form of JSON."""
    probe = {"exec": {"command": texts}}
    container = {
        "command": texts,
        "args": texts,
        "env": [
            {"name": f"{i}.{text}", "value": text}
            for i, text in enumerate(texts)
            if "=" not in text
        ],
        "volumeMounts": [
            {"name": "map", "mountPath": f"/{i}{text}", "subPath": f"{i}{text}".replace("..", "")}
            for i, text in enumerate(texts)
            if ":" not in text
        ],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "startupProbe": probe,
        "lifecycle": {"postStart": probe, "preStop": probe},
        "terminationMessagePath": f"/{texts[0]}",
        "workingDir": f"/{texts[1]}",
    }
    body = pod(container, volumes=[{"name": "map", "configMap": {"name": "map"}}])
    annotations = {"slurm-job.vk.io/singularity-options": shlex.join(texts), POD_IP: texts[2]}
    body["metadata"] = {"name": "hooks", "annotations": annotations}  # a variable's name, too
    documents = [body, config_map("map", data={str(i): text for i, text in enumerate(texts)})]
    return "\n---\n".join(json.dumps(document, ensure_ascii=False) for document in documents)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_scripts_with_hostile_texts_satisfy_bash_and_shellcheck(
    runtime: str, tmp_path: Path
) -> None:
    texts = [text for text in (*COMMANDS, *SHAPES) if "\0" not in text and len(text) < 300]
    texts = [text for text in texts if text.isprintable() or text.isspace() or "\n" in text]
    rules = Rules(annotations=("singularity-options",))
    config = BuildConfig(runtime=Runtime(name=runtime), rules=rules)
    job = build(read_manifests([("pod.json", everything(texts))]), config)
    write_job(job, tmp_path / "job")
    scripts = [str(tmp_path / "job" / name) for name in ("job.sh", "secret/pod.sh")]
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
    # It sees neither what the other file reads nor that a ~ in quotes is meant so.
    command = ["shellcheck", "--severity=warning", "--shell=bash", "--exclude=SC2034,SC2088"]
    found = subprocess.run([*command, *scripts], check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("awk", ["mawk", "gawk", "busybox"])
def test_every_awk_will_do(sandbox: Sandbox, awk: str) -> None:
    program = shutil.which(awk)
    assert program is not None, f"{awk} is missing; scripts/test installs it"
    (sandbox.folder / "bin" / "awk").symlink_to(program)
    work = {"name": "work", "mountPath": "/mnt/work"}
    done = sandbox.site.run(
        pod(
            sh("cat /mnt/work/x; exit 3", volumeMounts=[{**work, "readOnly": True}]),
            sh(
                "exec sleep 600",
                resources={"limits": {"memory": "64Mi"}},
                lifecycle={"postStart": {"exec": {"command": ["true"]}}},
                livenessProbe={"exec": {"command": ["false"]}, "failureThreshold": 1},
            ),
            initContainers=[
                {"name": "init", "image": "x", **sh("echo data >/mnt/work/x", volumeMounts=[work])}
            ],
            volumes=[{"name": "work", "emptyDir": {}}],
            terminationGracePeriodSeconds=5,
        ),
        environment=sandbox.environment,
    )
    assert "awk" not in done.output
    assert done.ends() == {"init": 0, "c0": 3, "c1": 143}
    assert done.log("c0") == "data\n"
