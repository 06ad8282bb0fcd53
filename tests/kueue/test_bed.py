"""The bed of scripts/bed itself: that it is what it says, bears kills, and leaves nothing."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.images import archive
from tests.support.kueue_api import Refused
from tests.support.kueue_bed import REPO, SCRIPT, KueueBed, running, until
from tests.support.processes import cables, control_groups
from tests.support.script_runner import put_program

IMAGE = "busybox:1.36"


@pytest.fixture
def namespace(bed: KueueBed) -> Iterator[str]:
    """One of its own for each test, with all that is in it gone at the end."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    bed.kubectl("create", "namespace", name)
    yield name
    bed.kubectl("delete", "namespace", name, "--wait=false")


def flavor(name: str) -> dict[str, Any]:
    api = "kueue.x-k8s.io/v1beta1"
    return {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": name}}


def queue(name: str, **quota: str) -> dict[str, Any]:
    """A ClusterQueue with one flavor of the same name, in a cohort of its own."""
    resources = [{"name": "cpu", **quota}, {"name": "memory", "nominalQuota": "1Gi"}]
    covered = [resource["name"] for resource in resources]
    group = {
        "coveredResources": covered,
        "flavors": [{"name": name, "resources": resources}],
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"cohort": name, "namespaceSelector": {}, "resourceGroups": [group]},
    }


def local_queue(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "jobs", "namespace": namespace},
        "spec": {"clusterQueue": name},
    }


def job(namespace: str, name: str, line: str) -> dict[str, Any]:
    """A job of a line of shell that goes through the queue."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", line],
        "resources": {"requests": {"cpu": "100m", "memory": "10Mi"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kueue.x-k8s.io/queue-name": "jobs"},
        },
        "spec": {
            "backoffLimit": 0,
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", [])}


@pytest.fixture
def queues(bed: KueueBed, namespace: str) -> Iterator[str]:
    """A LocalQueue "jobs" with one CPU behind it; the name of what is not in the namespace."""
    bed.apply(flavor(namespace), queue(namespace, nominalQuota="1"))
    bed.apply(local_queue(namespace, namespace))
    yield namespace
    bed.kubectl("delete", "--wait=false", "clusterqueue,resourceflavor", namespace)


@pytest.mark.both_kueues
def test_a_job_is_admitted_and_runs_on_the_node(bed: KueueBed, namespace: str, queues: str) -> None:
    bed.apply(job(namespace, "sum", "echo $((6 * 7))"))
    complete = ("wait", "--for=condition=Complete", "--timeout=60s", "job/sum")
    bed.kubectl(*complete, "--namespace", namespace, seconds=90)
    (workload,) = bed.get("workloads", namespace=namespace)["items"]
    assert workload["status"]["admission"]["clusterQueue"] == queues
    assert conditions(workload)["Finished"] == "True"
    assert bed.kubectl("logs", "job/sum", "--namespace", namespace) == "42\n"


@pytest.mark.both_kueues
def test_a_job_without_quota_waits(bed: KueueBed, namespace: str, queues: str) -> None:
    wide = job(namespace, "wide", "true")
    (container,) = wide["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"]["cpu"] = "2"
    bed.apply(wide)

    def refused() -> bool:
        found = bed.get("workloads", namespace=namespace)["items"]
        return [conditions(item).get("QuotaReserved") for item in found] == ["False"]

    bed.until(refused, what="word of the quota")
    assert bed.get("job", "wide", namespace=namespace)["spec"]["suspend"] is True


@pytest.mark.both_kueues
def test_kueues_own_checks_are_in_force(bed: KueueBed, namespace: str) -> None:
    with pytest.raises(Refused, match=r"admission webhook .* denied .*lendingLimit"):
        bed.apply(queue(namespace, nominalQuota="1", lendingLimit="2"))
    bed.apply(queue(namespace, nominalQuota="2", lendingLimit="2"))
    bed.kubectl("delete", "clusterqueue", namespace)


def test_what_is_written_in_the_old_language_is_read_in_the_new_one(
    bed: KueueBed, namespace: str
) -> None:
    bed.apply(queue(namespace, nominalQuota="1"))
    found = bed.get("clusterqueues.v1beta2.kueue.x-k8s.io", namespace)
    assert found["spec"]["cohortName"] == namespace
    bed.kubectl("delete", "clusterqueue", namespace)


def test_pods_find_services_by_name(bed: KueueBed, namespace: str) -> None:
    inside = ("--namespace", namespace)
    server = [f"--image={IMAGE}", "--port=8080", "--expose", "--restart=Never", "--command", "--"]
    serve = "mkdir /www && echo found >/www/index.html && exec httpd -f -p 8080 -h /www"
    bed.kubectl("run", "web", *inside, *server, "sh", "-c", serve)
    ask = f"until wget -q -O - http://web.{namespace}.svc.cluster.local:8080/; do sleep 1; done"
    options = (f"--image={IMAGE}", "--restart=Never", "--command", "--")
    bed.kubectl("run", "asks", *inside, *options, "sh", "-c", ask)
    done = ("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s", "pod/asks")
    bed.kubectl(*done, *inside, seconds=90)
    assert bed.kubectl("logs", "asks", *inside).splitlines()[-1] == "found"


def test_a_service_account_has_its_own_rights_only(bed: KueueBed, namespace: str) -> None:
    bed.kubectl("create", "serviceaccount", "reader", "--namespace", namespace)
    view = ("--clusterrole=view", f"--serviceaccount={namespace}:reader")
    bed.kubectl("create", "rolebinding", "reader", *view, "--namespace", namespace)
    config = bed.kubeconfig_for("reader", namespace)
    assert config.stat().st_mode & 0o777 == 0o600
    as_reader = f"--kubeconfig={config}"
    bed.kubectl(as_reader, "get", "pods")
    with pytest.raises(Refused, match="forbidden"):
        bed.kubectl(as_reader, "get", "nodes")


@pytest.mark.parametrize("program", ["apiserver", "etcd"])
def test_objects_outlive_a_kill(bed: KueueBed, namespace: str, program: str) -> None:
    bed.kubectl("create", "configmap", "kept", "--from-literal=a=b", "--namespace", namespace)
    bed.kill(program)
    with pytest.raises(Refused):
        bed.kubectl("get", "configmap", "kept", "--namespace", namespace, "--request-timeout=5s")
    bed.start(program)
    found = bed.get("configmap", "kept", namespace=namespace)
    assert found["data"] == {"a": "b"}


def test_nothing_goes_past_kueue_while_it_is_away(
    bed: KueueBed, namespace: str, queues: str
) -> None:
    bed.kill("kueue")
    with pytest.raises(Refused, match="failed calling webhook"):
        bed.apply(job(namespace, "early", "true"))
    bed.start("kueue")
    bed.apply(job(namespace, "late", "true"))
    complete = ("wait", "--for=condition=Complete", "--timeout=60s", "job/late")
    bed.kubectl(*complete, "--namespace", namespace, seconds=90)


def test_pods_reach_this_machine_and_nothing_beyond(bed: KueueBed, namespace: str) -> None:
    with socket.create_server((bed.host, 0)) as server:
        port = server.getsockname()[1]
        outside = "203.0.113.1"  # an address that nobody has
        line = f"nc -w 5 {bed.host} {port} </dev/null && ! nc -w 5 {outside} {port} </dev/null"
        options = (f"--image={IMAGE}", "--restart=Never", "--command", "--")
        bed.kubectl("run", "calls", "--namespace", namespace, *options, "sh", "-c", line)
        server.settimeout(30)
        connection, (address, _) = server.accept()
        connection.close()
        assert address == bed.server.removeprefix("https://").partition(":")[0]
    done = ("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30s", "pod/calls")
    bed.kubectl(*done, "--namespace", namespace)


def test_the_node_runs_an_image_that_it_was_given(
    bed: KueueBed, namespace: str, tmp_path: Path
) -> None:
    name = f"example.test/{namespace}:1"
    programs = {"/busybox": Path("/bin/busybox")}
    bed.load(archive(tmp_path / "image.tar", name, programs, ["/busybox", "echo", "given"]))
    inside = ("--namespace", namespace)
    bed.kubectl("run", "says", *inside, f"--image={name}", "--restart=Never")
    done = ("wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=30s", "pod/says")
    bed.kubectl(*done, *inside)
    assert bed.kubectl("logs", "says", *inside) == "given\n"


# --- beginning and end ----------------------------------------------------------------------------


def traces(name: str, space: str) -> dict[str, list[str]]:
    """What a bed of this name with this network name space has left on this machine."""
    processes = []
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            if os.readlink(entry) == space:
                processes.append(entry.parts[2])
        except OSError:
            continue
    mounts = [
        line
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if f"/beds/{name}" in line
    ]
    return {
        "processes": processes,
        "links": cables(name),
        "mounts": mounts,
        "groups": control_groups(f"interlink-bed-{name}"),
    }


NOTHING: dict[str, list[str]] = {"processes": [], "links": [], "mounts": [], "groups": []}


def network_of(name: str) -> str:
    """The name space of its network, as the kernel numbers it."""
    look = [str(SCRIPT), "enter", "--name", name, "readlink", "/proc/self/ns/net"]
    return subprocess.run(look, check=True, capture_output=True, text=True).stdout.strip()


def test_two_beds_do_not_meet_and_a_bed_leaves_nothing(bed: KueueBed) -> None:
    name = f"second-{os.getpid()}"
    with running(name, node=False) as second:
        space = network_of(name)
        before = traces(name, space)
        assert len(before["processes"]) > 5
        assert len(before["links"]) == 1
        assert before["groups"]
        assert second.server != bed.server
        second.kubectl("create", "namespace", "only-in-the-second")
        with pytest.raises(Refused, match="not found"):
            bed.get("namespace", "only-in-the-second")
        folder = second.kubeconfig.parent
    assert traces(name, space) == NOTHING
    assert not folder.exists()
    assert bed.get("namespace", "default")["status"]["phase"] == "Active"


def test_a_bed_ends_with_who_holds_it() -> None:
    name = f"held-{os.getpid()}"
    program = f"""
        import time
        from tests.support.kueue_bed import running
        with running({name!r}, node=False):
            print("up", flush=True)
            time.sleep(600)
        """
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=REPO,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "up\n"
        space = network_of(name)
        assert traces(name, space)["processes"]
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        until(lambda: traces(name, space) == NOTHING, what="the end of the bed")
    finally:
        holder.kill()
        subprocess.run([str(SCRIPT), "down", "--name", name], check=True)


def test_a_bed_of_a_person_is_cleared_away_when_its_machine_was_killed() -> None:
    name = f"killed-{os.getpid()}"
    up = f"{shlex.quote(str(SCRIPT))} up kueue --name {name} --without-node"
    try:
        # As README.md says, and whether there is a kubectl on this machine or not.
        typed = ["bash", "-c", f'eval "$({up})"; kubectl get namespaces --output=name']
        assert "namespace/kube-system\n" in subprocess.check_output(typed, text=True)
        space = network_of(name)
        processes = map(int, traces(name, space)["processes"])
        (first,) = filter(is_first_of_its_space, processes)
        os.kill(first, signal.SIGKILL)
        status = [str(SCRIPT), "status", "--name", name]
        until(lambda: subprocess.run(status, check=False).returncode, what="the machine's end")
        assert traces(name, space)["groups"]
    finally:
        subprocess.run([str(SCRIPT), "down", "--name", name], check=True)
    assert traces(name, space) == NOTHING
    subprocess.run([str(SCRIPT), "down", "--name", name], check=True)


@pytest.mark.parametrize("at_once", [False, True])
def test_what_does_not_start_is_told_with_the_end_of_its_log(tmp_path: Path, at_once: bool) -> None:
    name = f"broken-{os.getpid()}"
    programs = put_program(tmp_path, "etcd", "#!/bin/sh\necho no such luck >&2\nexit 3\n")
    if at_once:
        # The shell that starts a program has seen its end before it goes on.
        wait = f"{programs}/wait"
        Path(wait).write_text("trap '[ \"$1\" != etcd ] || ${!:+wait $!}' DEBUG\n")
        put_program(tmp_path, "bash", f'#!/bin/sh\nBASH_ENV={wait} exec /bin/bash "$@"\n')
    up = [str(SCRIPT), "up", "kueue", "--name", name, "--without-node"]
    assets = {**os.environ, "KUBEBUILDER_ASSETS": programs}
    try:
        done = subprocess.run(up, env=assets, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "etcd has ended: see " in done.stderr
        assert "\n    no such luck\n" in done.stderr
        assert traces(name, "") == NOTHING
        word = next(word for word in done.stderr.split() if word.endswith("/log/etcd.log,"))
        log = Path(word.rstrip(","))
        assert log.read_text() == "no such luck\n"
        assert [path.name for path in log.parent.parent.iterdir()] == ["log"]
    finally:
        subprocess.run([str(SCRIPT), "down", "--name", name], check=True)


def is_first_of_its_space(pid: int) -> bool:
    """Whether a process is number 1 where it lives."""
    status = Path(f"/proc/{pid}/status").read_text()
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
    return len(numbers) > 2 and numbers[-1] == "1"
