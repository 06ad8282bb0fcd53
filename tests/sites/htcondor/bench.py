"""A pool of an HTCondor site whose programs are started from here, as its user's at the schedd."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

from submitter.backends.base import JobRef
from submitter.backends.htcondor.backend import HTCondorBackend
from submitter.backends.htcondor.transfer import INPUT, STUB
from submitter.config.settings import Pool
from submitter.store.journal import Journal
from templates.job.model import Job
from templates.pod.user_manifests import read_manifests
from templates.site.build_config import BuildConfig, Runtime, Script
from templates.translation.build import build
from tests.sites.htcondor.site import USER, USER_ID, RunningSite
from tests.unit.submitter.bench import BackendBench
from tests.unit.submitter.rig import manifest_of, placed

WAIT = "while :; do sleep 0.2; done"


class Bench(BackendBench):
    """The backend, and what tests do with it."""

    def __init__(self, site: RunningSite, rerun: bool = False, **options: Any) -> None:
        self.site = site
        self.config = BuildConfig(runtime=Runtime(name="host"), script=Script(rerun=rerun))
        folder = site.home / f"pool-{time.monotonic_ns()}"
        self.pool = Pool(
            name=f"site{time.monotonic_ns()}",
            directory=str(folder),
            backend="htcondor",
            build=self.config,
            options={"prefix": site.command("login", [], USER), "export": ["HOME"], **options},
        )
        self.journal = Journal(str(folder))
        self.journal.prepare()
        self.backend = self.condor = HTCondorBackend(self.pool)
        self.hand_over()

    def hand_over(self) -> None:
        """All of the pool's files are its user's."""
        folder = Path(self.pool.directory)
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, USER_ID, USER_ID)

    def journaled(
        self, script: str = "exit 0", says: Optional[Mapping[str, str]] = None, **more: Any
    ) -> Job:
        job = build(read_manifests([("pod.json", manifest_of(script, **more))]), self.config)
        annotations = {f"condor/{name}": value for name, value in (says or {}).items()}
        job = job._replace(annotations=annotations)
        placed(self.journal, job)
        self.hand_over()
        return job

    def submit(
        self, script: str = "exit 0", says: Optional[Mapping[str, str]] = None, **more: Any
    ) -> JobRef:
        return self.hand_in(self.journaled(script, says, **more))

    def hand_in(self, job: Job) -> JobRef:
        """Submit a job that is journaled."""
        directory = self.journal.of(job.name)
        if not self.pool.options.get("shared", True):  # what is written for it is its user's
            Path(directory, INPUT).touch(0o600)
            Path(directory, STUB).touch(0o700)
            self.hand_over()
        return JobRef(job.name, self.condor.submit(job, directory), directory)

    def value(self, ref: JobRef, *attributes: str) -> str:
        """Attributes of a job in the queue, as condor_q prints them; empty when it is not there."""
        return self.site.login("condor_q", ref.native, "-af:r", *attributes).strip()


@contextlib.contextmanager
def schedd_with(site: RunningSite, **settings: Any) -> Iterator[None]:
    """Change the schedd's configuration for a while."""
    file = "/etc/condor/config.d/99-test"
    lines = " ".join(f"{name}={value}" for name, value in settings.items())
    site.admin("bash", "-c", f"printf '%s\\n' {lines} >{file}; condor_reconfig -schedd")
    try:
        yield
    finally:
        site.admin("bash", "-c", f"rm {file}; condor_reconfig -schedd")
