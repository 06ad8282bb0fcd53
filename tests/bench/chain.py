"""The whole chain, from kubectl to a host site and back, on an idle bed of scripts/bed.

``chain-first-log``: from ``kubectl create`` of a Job to the first line that ``kubectl logs -f``
shows of it, by the clock of who types. ``kubectl logs`` goes from the API server through interLink
to the plugin without waiting for the virtual kubelet's look at the pod, which comes every 5 s: the
line is often there while the pod is still shown as Pending. So there is nothing to take out of the
account, and the figure is raw. The row's name says when the pod was shown as Running.

``chain-500``: 500 Jobs of 30 s at once through Kueue to one host site with 64 slots, from the first
``kubectl create`` until Kubernetes says Complete of the last. The bar is the slower of two: the
site's machine running the same 500 scripts, 64 at a time, with nothing else; and the same Jobs
through the same Kueue and interLink with a plugin that does nothing but say "done after 30 s". The
pods mount no token: of each, the virtual kubelet would make several requests, of which it allows
itself so few that it would hide everything else. Jobs run without containers: what Apptainer takes
on this machine is measured elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from templates.cli.render_pod import write_job
from templates.site.build_config import BuildConfig, Runtime
from templates.translation.build import build
from tests.bench import null_plugin
from tests.bench.rows import Row
from tests.sites.slurm.site import USER_ID
from tests.support.kueue_api import Refused
from tests.support.kueue_bed import REPO, SCRIPT, KueueBed, running, until
from tests.support.script_runner import manifests

JOBS, SLOTS, SECONDS = 500, 64, 30
ROUNDS = 11
AT_ONCE = 100  # Jobs in one call of kubectl
SITE, QUEUE, NODE = "host", "bench", "interlink"
PATIENCE_S = 3600
# One slot of the site for each job; what xargs starts next takes the one that has become free.
ALONE = (
    "cd {folder} && start=${{EPOCHREALTIME/./}} && "
    "ls -d job-* | xargs -P {slots} -I '{{}}' bash '{{}}/job.sh' '{folder}/{{}}' '{folder}/told' "
    ">/dev/null && echo $((${{EPOCHREALTIME/./}} - start))"
)

Json = dict[str, Any]


def run() -> list[Row]:
    """All rows, on one bed."""
    with running(f"bench-{os.getpid()}", sites=(SITE,)) as bed:
        prepare(bed)
        raw, shown = first_logs(bed)
        whole = through_kueue(bed)
        with plugin_that_does_nothing(bed):
            null = through_kueue(bed)
        bed.stop("plugin", "operator", "virtual-kubelet", "kueue")
        alone = site_alone(bed)
    name = f"chain-first-log (shown as Running after {shown:.1f} s)"
    against, slower = max(("the site alone", alone), ("interLink alone", null), key=lambda x: x[1])
    both = f"chain-{JOBS} (the site alone {alone:.0f} s, interLink alone {null:.0f} s)"
    return [
        Row(name, raw, "s", "limit", 4, "<=", 1),
        Row(both, whole, "s", against, slower, "<=", 1.1),
    ]


def prepare(bed: KueueBed) -> None:
    """A site with 64 slots and no containers, and a queue that leads to nothing else."""
    site = bed.site(SITE)
    file = site.home / "submitter" / "submitter.yaml"
    settings = json.loads(file.read_text())
    (pool,) = settings["pools"]
    pool["resources"] = {"cpu": str(SLOTS), "memory": "64Gi", "pods": str(SLOTS)}
    pool["build"]["runtime"] = {"name": "host"}
    file.write_text(json.dumps(settings))
    site.stop("submitter")
    site.start("submitter")
    nats = {"poolRegExp": SITE, "virtualNode": NODE, "riseAfter": 0}
    flavor = {"name": "sites", "natsFlavor": nats}
    master = {
        "apiVersion": "vk.io/v1",
        "kind": "MasterQueue",
        "metadata": {"name": QUEUE},
        "spec": {"template": {"cohort": QUEUE}, "flavors": [flavor]},
    }
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": QUEUE, "namespace": "default"},
        "spec": {"clusterQueue": QUEUE},
    }
    bed.apply(master, queue)
    until(lambda: slots(bed) == str(SLOTS), 60, f"{SLOTS} slots in the queue")


def slots(bed: KueueBed) -> str:
    """The CPUs that the MasterQueue has of the site."""
    spec = bed.get("clusterqueues.kueue.x-k8s.io", QUEUE)["spec"]
    for group in spec.get("resourceGroups") or ():
        for resource in group["flavors"][0]["resources"]:
            if resource["name"] == "cpu":
                return str(resource["nominalQuota"])
    return ""


def pod(script: str) -> Json:
    """What a Job's pod is made of."""
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    }
    return {
        "restartPolicy": "Never",
        "containers": [container],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"key": "virtual-node.interlink/no-schedule", "operator": "Exists"}],
    }


def job(name: str, script: str) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": QUEUE}},
        "spec": {"backoffLimit": 0, "template": {"spec": pod(script)}},
    }


# --- one job --------------------------------------------------------------------------------------


def first_logs(bed: KueueBed) -> tuple[float, float]:
    """Seconds to the first line of the log, and until the pod is shown as Running; medians."""
    first_log(bed, "warm")
    both = [first_log(bed, f"first-{number}") for number in range(ROUNDS)]
    sys.stderr.write(f"bench: first lines, and shown as Running, after (s): {both}\n")
    lines, shown = zip(*both)
    return statistics.median(lines), statistics.median(shown)


def first_log(bed: KueueBed, name: str) -> tuple[float, float]:
    text = json.dumps(job(name, "echo first; sleep 60"))
    start = time.monotonic()
    bed.kubectl("create", "-f", "-", input=text)
    line = until_line(bed, name) - start

    def phase() -> str:
        (found,) = bed.api.get("pods", selector=f"job-name={name}")["items"]
        return str(found["status"]["phase"])

    until(lambda: phase() == "Running", 60, f"{name} to be shown as Running")
    shown = time.monotonic() - start
    bed.kubectl("delete", "job", name, "--cascade=foreground")
    return line, shown


def until_line(bed: KueueBed, name: str) -> float:
    """When kubectl has shown the first line; until the pod has a node it is refused."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with bed.spawn("logs", "--follow", f"job/{name}") as process:
            if process.stdout is not None and process.stdout.readline() == "first\n":
                at = time.monotonic()
                process.terminate()
                return at
        time.sleep(0.1)
    raise RuntimeError(f"no log of {name}")


# --- many jobs ------------------------------------------------------------------------------------


def through_kueue(bed: KueueBed) -> float:
    """Seconds until all are Complete."""
    names = [f"sleep-{number}" for number in range(JOBS)]
    start = time.monotonic()
    for first in range(0, JOBS, AT_ONCE):
        some = [
            json.dumps(job(name, f"sleep {SECONDS}")) for name in names[first : first + AT_ONCE]
        ]
        bed.kubectl("create", "-f", "-", input="\n---\n".join(some))
    complete = ("wait", "--for=condition=Complete", "job", "--all", f"--timeout={PATIENCE_S}s")
    waiting = bed.spawn(*complete)
    while waiting.poll() is None:
        time.sleep(1)
        keep_alive(bed)
    took = time.monotonic() - start
    sys.stderr.write(f"bench: {JOBS} jobs through Kueue took {took:.1f} s\n")
    if waiting.returncode:
        raise RuntimeError("the jobs have not become Complete")
    bed.kubectl("delete", "jobs", "--all", "--wait=true", seconds=300)
    until(lambda: not bed.get("pods")["items"], 300, "the end of the pods")
    return took


def keep_alive(bed: KueueBed) -> None:
    """Kubernetes starts again what has died; of the virtual kubelet that is to be expected."""
    with contextlib.suppress(AssertionError, Refused):
        if "virtual-kubelet" in bed.ended():
            sys.stderr.write("bench: the virtual kubelet has died\n")
            bed.start("virtual-kubelet")


@contextlib.contextmanager
def plugin_that_does_nothing(bed: KueueBed) -> Iterator[None]:
    """In the place of ours; the site's offers go on being heard by the operator."""
    bed.stop("plugin")
    options = ["--bind", "127.0.0.1:4000", "--worker-class", "gthread", "--threads", "128"]
    gunicorn = [
        sys.executable,
        "-P",
        "-m",
        "gunicorn",
        *options,
        "--keep-alive",
        "150",
        "--no-control-socket",
    ]
    command = [str(SCRIPT), "enter", "--name", bed.name, "--", "env", f"PYTHONPATH={REPO}"]
    words = [*command, *gunicorn, f"{null_plugin.__name__}:app"]
    with subprocess.Popen(words, start_new_session=True) as process:
        try:
            until(lambda: process.poll() is None and answers(bed), 30, "the plugin")
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
    bed.start("plugin")


def answers(bed: KueueBed) -> bool:
    """Whether interLink's API server gets answers."""
    ping = [
        "curl",
        "-fs",
        "-X",
        "POST",
        "--unix-socket",
        "/run/interlink.sock",
        "http://i/pinglink",
    ]
    command = [str(SCRIPT), "enter", "--name", bed.name, "--", *ping]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def site_alone(bed: KueueBed) -> float:
    """Seconds that its machine takes for the same scripts."""
    site = bed.site(SITE)
    folder = site.home / "alone"
    bare_pod = {"apiVersion": "v1", "kind": "Pod", "spec": pod(f"sleep {SECONDS}")}
    config = BuildConfig(runtime=Runtime(name="host"))
    for number in range(JOBS):
        one = {**bare_pod, "metadata": {"name": f"job-{number}"}}
        write_job(build(manifests(one), config), folder / f"job-{number}")
    (folder / "told").mkdir()
    for path in itertools.chain([folder], folder.rglob("*")):
        os.chown(path, USER_ID, USER_ID)
    line = ALONE.format(folder=folder, slots=SLOTS)
    code, told = site.attempt("bash", "-c", line, seconds=PATIENCE_S)
    if code or not told.strip().isdigit():
        raise RuntimeError(f"the site alone: {told}")
    took = int(told) / 1e6
    if took < JOBS / SLOTS * SECONDS:
        raise RuntimeError(f"the site alone: {took} s are too few for {JOBS} jobs of {SECONDS} s")
    shutil.rmtree(folder)
    sys.stderr.write(f"bench: {JOBS} jobs of the site alone took {took:.1f} s\n")
    return took
