"""The operator as a process, with the rights that the chart gives it; and pools that publish."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Optional

from plugin_server.nats.bridge import Bridge
from scripts.lib.bed import objects as chain_objects
from scripts.lib.interlink import free_port
from templates.nats import subjects
from templates.nats.connection import Link, Request
from templates.nats.options import LinkSettings
from templates.nats.requests import NotConnected
from templates.protocol import publications
from templates.protocol.publications import Resources
from tests.support.kueue_api import Refused
from tests.support.kueue_bed import REPO, KueueBed, until
from tests.support.nats_server import NatsServer

NAMESPACE = ACCOUNT = chain_objects.OPERATOR
USER, PASSWORD = "user", "pass/word"

Json = dict[str, Any]


def install(bed: KueueBed) -> Path:
    """What the chart puts into a cluster for the operator; returns its kubeconfig."""
    bed.apply(*chain_objects.operator())
    bed.kubectl("wait", "--for=condition=Established", "crd/masterqueues.vk.io", "--timeout=30s")
    return bed.kubeconfig_for(ACCOUNT, NAMESPACE)


class Operator:
    """One operator process."""

    def __init__(self, folder: Path, kubeconfig: Path, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.config = folder / "kueue-nats.yaml"
        self.log = folder / "kueue-nats.log"
        config = {
            "kubeconfig": str(kubeconfig),
            "namespace": NAMESPACE,
            "poll_s": 1,
            "lease_s": 5,
            "listen": f"127.0.0.1:{self.port}",
            **settings,
        }
        self.config.write_text(json.dumps(config))
        self.process: Optional[subprocess.Popen[bytes]] = None

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "kueue_nats", "--config", str(self.config), *words]

    def start(self) -> Operator:
        with self.log.open("ab") as log:
            environment = {**os.environ, "PYTHONPATH": str(REPO)}
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=environment)
        return self

    def until_up(self) -> Operator:
        """Wait until it answers; its first round may be under way."""

        def answers() -> bool:
            assert self.process is not None and self.process.poll() is None, self.words()
            with contextlib.suppress(OSError):
                return self.page("/healthz") == "ok\n"
            return False

        until(answers, 60, "the operator")
        return self

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another process of it, to its end."""
        environment = {**os.environ, "PYTHONPATH": str(REPO)}
        return subprocess.run(
            self.command(*words),
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(40)
        self.process = None
        return code

    def words(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def page(self, path: str) -> str:
        """What it says over HTTP."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    def metric(self, name: str) -> float:
        """One figure of /metrics."""
        lines = self.page("/metrics").splitlines()
        return next(float(line.split()[-1]) for line in lines if line.split()[0] == name)


class Pools:
    """Pools that publish what a test says, below a root of their own, again and again."""

    def __init__(self, nats: NatsServer, root: str) -> None:
        self.root = root
        self.subject = f"{root}.{subjects.RESOURCES}"
        self.answers = False  # whether they answer a hello, as submitters do
        self._offers: dict[str, Resources] = {}
        self._bridge = Bridge()
        self._bridge.start()
        self._link = self._bridge.call(self._linked(nats), 30)

    async def _linked(self, nats: NatsServer) -> Link:
        settings = LinkSettings((nats.url,), name="test pools", user=USER, password=PASSWORD)
        link = Link(settings, self.root)
        link.subscribe(subjects.subject(self.root, subjects.HELLO), self._hello)
        await link.start()
        assert await link.connected(20), link.error
        return link

    async def _hello(self, _: Request) -> None:
        if self.answers:
            for pool in self._offers:
                await self._say(pool)

    async def _say(self, pool: str) -> None:
        where = subjects.subject(self.root, subjects.RESOURCES, pool)
        message = publications.write_resources(self._offers[pool])
        with contextlib.suppress(NotConnected):  # to the server that a test has killed
            await self._link.publish(where, message, compress=False)

    def close(self) -> None:
        self._bridge.call(self._link.stop(), 30)
        self._bridge.stop()

    def offer(self, pool: str, more: Optional[Json] = None, **quotas: object) -> None:
        """Publish, now and whenever ``until`` is waited for."""
        texts = {name: str(amount) for name, amount in quotas.items()}
        self._offers[pool] = Resources(pool, texts, **(more or {}))
        self.publish(pool)

    def forget(self, pool: str) -> Json:
        """Fall silent; returns what was offered, to take it up again."""
        return dict(self._offers.pop(pool).quotas)

    def publish(self, *pools: str) -> None:
        """Say again what these, or all, offer."""
        for pool in pools or [*self._offers]:
            self._bridge.call(self._say(pool), 30)

    def offered(self, pool: str) -> Json:
        """What a pool says."""
        return dict(self._offers[pool].quotas)

    def until(self, what: Any, seconds: float = 60, words: str = "it", only: str = "") -> Any:
        """Go on publishing until something is true; ``only`` one pool, if it is named."""
        said = 0.0

        def look() -> Any:
            nonlocal said
            if time.monotonic() - said > 1:
                self.publish(*filter(None, [only]))
                said = time.monotonic()
            return what()

        return until(look, seconds, words)


class Watch:
    """Kueue's condition Active of all queues, from the first event to ``stop``.

    Each entry is a monotonic time, and "True" or else Kueue's reason and message.
    """

    ACTIVE = ".status.conditions[?(@.type=='Active')]"
    SHOWN = (
        f"{{.metadata.name}} {{{ACTIVE}.status}} {{{ACTIVE}.reason}} {{{ACTIVE}.message}}{{'\\n'}}"
    )

    def __init__(self, bed: KueueBed) -> None:
        self.seen: dict[str, list[tuple[float, str]]] = {}
        self._bed = bed
        self._over = threading.Event()
        self._process: Optional[subprocess.Popen[str]] = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._process is not None:
            self._process.terminate()
        self._thread.join(30)

    def _run(self) -> None:
        command = [
            "get",
            "clusterqueues.kueue.x-k8s.io",
            "--watch",
            f"--output=jsonpath={self.SHOWN}",
        ]
        while not self._over.wait(0.2):  # the API server may have been killed
            self._process = self._bed.spawn(*command)
            assert self._process.stdout is not None
            for line in self._process.stdout:
                queue, _, words = line.strip().partition(" ")
                status, _, why = words.partition(" ")
                if status:
                    event = (time.monotonic(), "True" if status == "True" else why)
                    self.seen.setdefault(queue, []).append(event)
            self._process.wait()
            self._process.stdout.close()


class World:
    """A bed with an operator, a NATS server, and things of one test's own in them."""

    def __init__(self, bed: KueueBed, operator: Operator, pools: Pools, name: str) -> None:
        self.bed, self.operator, self.pools, self.name = bed, operator, pools, name
        self.url = ""
        self.masters: list[str] = []
        bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def close(self) -> None:
        """Let all of it go; nobody else has things of these names, so nobody waits for that."""
        gone = ("--ignore-not-found", "--wait=false")
        if self.masters:
            self.bed.kubectl("delete", "masterqueues.vk.io", *self.masters, *gone)
        self.bed.kubectl("delete", "namespace", self.name, *gone)

    # --- MasterQueues ---------------------------------------------------------------------------

    def nats_flavor(self, **more: Any) -> Json:
        """A natsFlavor that hears the pools of this test."""
        flavor = {"natsConnector": self.url, "natsSubject": self.pools.subject, **more}
        if "pools" not in flavor:
            flavor.setdefault("poolRegExp", ".*")
        return {"virtualNode": "interlink", "poolTimeout": 30, "riseAfter": 0, **flavor}

    def master(self, flavors: list[Json], name: str = "", **spec: Any) -> str:
        """Apply a MasterQueue; its name begins with that of the test."""
        name = f"{self.name}{name}"
        body = {"template": {"cohort": self.name}, "flavors": flavors, **spec}
        self.bed.apply(
            {
                "apiVersion": "vk.io/v1",
                "kind": "MasterQueue",
                "metadata": {"name": name},
                "spec": body,
            }
        )
        if name not in self.masters:
            self.masters.append(name)
        return name

    def status(self, master: str = "") -> Json:
        found = self.bed.get("masterqueues.vk.io", master or self.name).get("status") or {}
        return dict(found)

    def condition(self, kind: str, master: str = "") -> Json:
        conditions = self.status(master).get("conditions") or []
        return next((entry for entry in conditions if entry["type"] == kind), {})

    def pool(self, name: str, master: str = "") -> Json:
        """What a status says of a pool."""
        pools = self.status(master).get("pools") or []
        return next((entry for entry in pools if entry["name"] == name), {})

    def until_pool(self, name: str, state: str, master: str = "") -> Json:
        """Publish until a pool is in a state."""

        def look() -> Any:
            found = self.pool(name, master)
            return found if found.get("state") == state else None

        found: Json = self.pools.until(look, 60, f"{name} to be {state}")
        return found

    def made_by(self, master: str) -> list[str]:
        """The objects that belong to a MasterQueue."""
        return [
            f"{item['kind']}/{item['metadata']['name']}"
            for kind in ("resourceflavors", "clusterqueues")
            for item in self.bed.get(f"{kind}.kueue.x-k8s.io")["items"]
            if any(r["name"] == master for r in item["metadata"].get("ownerReferences") or ())
        ]

    def queue(self, name: str) -> Json:
        return self.bed.get("clusterqueues.kueue.x-k8s.io", name)

    def quota(self, queue: str, flavor: str) -> Json:
        """Resource -> its entry, of one flavor of a queue; empty if the queue does not name it."""
        for group in self.queue(queue)["spec"].get("resourceGroups") or ():
            for entry in group["flavors"]:
                if entry["name"] == flavor:
                    return {resource["name"]: resource for resource in entry["resources"]}
        return {}

    def flavor(self, pool: str, group: str = "remote", master: str = "") -> str:
        return f"{master or self.name}.{group}.{pool}"

    def foreign_flavor(self, name: str) -> str:
        """A ResourceFlavor of the admin's, for the bed's own node."""
        name = f"{self.name}-{name}"
        self.bed.apply(
            {"apiVersion": self.api, "kind": "ResourceFlavor", "metadata": {"name": name}}
        )
        return name

    @property
    def api(self) -> str:
        return "kueue.x-k8s.io/v1beta1"  # both versions serve it

    # --- jobs -----------------------------------------------------------------------------------

    def local_queue(self, queue: str) -> str:
        """A LocalQueue of this test's namespace that leads to a ClusterQueue."""
        self.bed.apply(
            {
                "apiVersion": self.api,
                "kind": "LocalQueue",
                "metadata": {"name": queue, "namespace": self.name},
                "spec": {"clusterQueue": queue},
            }
        )
        return queue

    def job(self, name: str, queue: str, *, remote: bool = True, **more: Any) -> None:
        """Apply a Job that waits in a LocalQueue."""
        container = {
            "name": "main",
            "image": more.get("image", "busybox:1.36"),
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", more.get("script", "sleep 1")],
            "resources": {
                "requests": more.get("requests", {"cpu": "100m", "memory": "16Mi"}),
                "limits": more.get("limits", {}),
            },
        }
        pod: Json = {"restartPolicy": "Never", "containers": [container]}
        pod["terminationGracePeriodSeconds"] = 1
        if remote:
            taint = {"key": "virtual-node.interlink/no-schedule", "operator": "Exists"}
            pod["tolerations"] = [taint]
        labels = {"kueue.x-k8s.io/queue-name": queue}
        self.bed.apply(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": self.name, "labels": labels},
                "spec": {"template": {"spec": pod}, "backoffLimit": 0},
            }
        )

    def workloads(self) -> dict[str, Json]:
        """By the Jobs that they are of."""
        items = self.bed.get("workloads.kueue.x-k8s.io", namespace=self.name)["items"]
        return {item["metadata"]["ownerReferences"][0]["name"]: item for item in items}

    def admitted_to(self, job: str) -> str:
        """The flavor that a Job was admitted to; empty if it was not."""
        workload = self.workloads().get(job) or {}
        admission = (workload.get("status") or {}).get("admission") or {}
        flavors = {f for a in admission.get("podSetAssignments", ()) for f in a["flavors"].values()}
        assert len(flavors) <= 1
        return next(iter(flavors), "")

    def waits_because(self, job: str) -> str:
        """Why Kueue has not admitted a Job."""
        workload = self.workloads().get(job) or {}
        conditions = (workload.get("status") or {}).get("conditions") or ()
        return next(
            (
                c["message"]
                for c in conditions
                if c["type"] == "QuotaReserved" and c["status"] == "False"
            ),
            "",
        )

    def until_admitted(self, job: str, flavor: str) -> None:
        """Publish until a Job is admitted to just this flavor."""
        self.pools.until(lambda: self.admitted_to(job) == flavor, 60, f"{job} on {flavor}")

    def refusal(self, *manifests: Any) -> str:
        """Why the API server does not take something."""
        try:
            self.bed.apply(*manifests)
        except Refused as refused:
            return str(refused)
        raise AssertionError("the API server has taken it")
