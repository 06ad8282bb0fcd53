"""Lives of jobs, as they happen at sites: every state that a site could report, in order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from submitter.jobs.job_status import SchedulerView, status_of
from templates.job.records import RUNNING, TERMINATED, WAITING, ContainerState, End, JobState
from templates.job.status import ENDED, QUEUED, STARTED, JobIdentity, JobStatus
from templates.pod.model import INIT, MAIN, SIDECAR
from tests.unit.plugin_server.pod_builders import job_of

START_MS = 1795021200000


def make_pod(dice: random.Random) -> dict[str, Any]:
    """A pod with any mix of containers; some of them are run by interLink itself."""
    inits: list[dict[str, Any]] = []
    for number in range(dice.randrange(4)):
        listed: dict[str, Any] = {"name": f"init-{number}", "image": "busybox"}
        if dice.random() < 0.4:
            listed["restartPolicy"] = "Always"
        inits.append(listed)
    mains = [{"name": f"main-{n}", "image": "busybox"} for n in range(dice.randrange(1, 4))]
    uid = "".join(dice.choices("0123456789abcdef", k=32))
    uid = f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:]}"
    return {
        "metadata": {"name": "story", "namespace": "team-a", "uid": uid},
        "spec": {
            "initContainers": inits,
            "containers": mains,
            "restartPolicy": dice.choice(("Never", "OnFailure", "Always")),
        },
        "status": {"phase": "Pending"},
    }


class Story:
    """One job's life, with the pod's final phase."""

    def __init__(self, pod: dict[str, Any], dice: random.Random) -> None:
        self.pod = pod
        self._dice = dice
        self._policy = pod["spec"]["restartPolicy"]
        self._clock = START_MS
        self._records = 0
        self._states: dict[str, ContainerState] = {}
        self._run = 0
        self._requeues = 0
        inits = [
            (c["name"], SIDECAR if c.get("restartPolicy") else INIT, c["image"])
            for c in pod["spec"]["initContainers"]
        ]
        mains = [(c["name"], MAIN, c["image"]) for c in pod["spec"]["containers"]]
        # What interLink runs itself is in the pod, and not in the job.
        inits = [c for c in inits if dice.random() < 0.8]
        local = mains[1:] if dice.random() < 0.2 else []
        self._listed = [*inits, *(c for c in mains if c not in local)]
        self._identity = JobIdentity(
            job_of(pod), pod["metadata"]["uid"], "team-a", "story", tuple(self._listed)
        )
        self.failed = False

    def tell(self) -> Iterator[JobStatus]:
        """Every state, in order; the last one is the end."""
        yield self._now(SchedulerView())
        for reason in ("Priority", "Resources")[: self._dice.randrange(3)]:
            yield self._now(SchedulerView(QUEUED, reason="Queued", message=f"Slurm: {reason}"))
        while True:
            yield from self._started()
            if not self._is_requeued():
                break
            yield self._now(SchedulerView(QUEUED, reason="Queued", message="Slurm: requeued"))
            self._run = 0
        yield self._end()

    def _now(self, view: SchedulerView) -> JobStatus:
        return status_of(self._identity, view, self._said(), self._records)

    def _said(self) -> JobState:
        return JobState(run=self._run, started_ms=self._run, containers=dict(self._states))

    def _is_requeued(self) -> bool:
        self._requeues += 1
        return not self._over and self._requeues < 3 and self._dice.random() < 0.5

    def _tick(self) -> int:
        self._clock += self._dice.randrange(1, 5000)
        return self._clock

    def _started(self) -> Iterator[JobStatus]:
        self._run, self._records, self._states = self._tick(), 1, {}
        self._over = False
        yield self._now(SchedulerView(STARTED))
        for name, kind, _ in self._listed:
            if kind == MAIN:
                continue
            for state in self._one(name, kind):
                yield state
                if self._dice.random() < 0.05:
                    return
            if kind == INIT and self._failed_for_good(name):
                self._over = True
                return
        yield from self._mains()

    def _failed_for_good(self, name: str) -> bool:
        end = self._states[name].end
        return end is not None and end.exit_code != 0

    def _one(self, name: str, kind: str) -> Iterator[JobStatus]:
        """An init container to its end; a sidecar until it has begun."""
        yield from self._begin(name)
        if kind == SIDECAR:
            yield self._set(name, begun=True, ready=True)
        else:
            yield self._ended(name)

    def _begin(self, name: str) -> Iterator[JobStatus]:
        if self._dice.random() < 0.3:
            yield self._put(ContainerState(name, WAITING, "ErrImagePull", "no such image"))
        before = self._states.get(name, ContainerState(name))
        if before.end is not None or before.last_end is not None:
            last = before.end or before.last_end
            crash = ContainerState(
                name, WAITING, "CrashLoopBackOff", restarts=before.restarts + 1, last_end=last
            )
            yield self._put(crash)
        restarts = self._states.get(name, before).restarts
        begun = self._dice.random() < 0.5
        last = before.end or before.last_end
        yield self._put(
            ContainerState(
                name,
                RUNNING,
                started_ms=self._tick(),
                begun=begun,
                ready=begun and self._dice.random() < 0.5,
                restarts=restarts,
                last_end=last,
            )
        )

    def _ended(self, name: str) -> JobStatus:
        code = self._dice.choice((0, 0, 0, 1, 3, 137))
        started = self._states[name].started_ms
        end = End(code, code - 128 if code > 128 else 0, "", "", started, self._tick())
        return self._set(name, state=TERMINATED, begun=False, ready=False, end=end, started_ms=0)

    def _put(self, state: ContainerState) -> JobStatus:
        self._records += 1
        self._states[state.name] = state
        return self._now(SchedulerView(STARTED))

    def _set(self, name: str, **changes: Any) -> JobStatus:
        return self._put(self._states[name]._replace(**changes))

    def _mains(self) -> Iterator[JobStatus]:
        mains = [name for name, kind, _ in self._listed if kind == MAIN]
        sidecars = [name for name, kind, _ in self._listed if kind == SIDECAR]
        for name in mains:
            yield from self._begin(name)
        for _ in range(self._dice.randrange(20)):
            name = self._dice.choice([*mains, *sidecars])
            state = self._states[name]
            if state.state == RUNNING and self._dice.random() < 0.5:
                yield self._set(name, begun=True, ready=self._dice.random() < 0.7)
            elif state.state == RUNNING:
                yield self._ended(name)
            elif name in sidecars or self._restarts(state):
                yield from self._begin(name)
        self._over = True
        for name in mains:
            if self._states[name].state == RUNNING:
                yield self._ended(name)

    def _restarts(self, state: ContainerState) -> bool:
        code = state.end.exit_code if state.end else 0
        return self._policy == "Always" or (self._policy == "OnFailure" and code != 0)

    def _end(self) -> JobStatus:
        """By itself when all is over; else by the batch system, with a cause."""
        kinds = {name: kind for name, kind, _ in self._listed}
        codes = [s.end.exit_code for n, s in self._states.items() if s.end and kinds[n] != SIDECAR]
        ended = all(s.end for n, s in self._states.items() if kinds[n] == MAIN)
        code = max(codes, default=0)
        if not self._over or not ended:
            code = self._dice.choice((1, 137, 143))
        self.failed = code != 0
        view = SchedulerView(
            ENDED, exit_code=code, at_ms=self._tick(), message="told to stop" if code else ""
        )
        return self._now(view)
