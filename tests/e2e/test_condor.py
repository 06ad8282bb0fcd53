"""The documented Job at a site of HTCondor's, in a chain of its own."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator

import pytest
import yaml

from tests.e2e.remains import remains
from tests.e2e.test_job import DOCUMENTED
from tests.e2e.users import VIRTUAL_NODE, User
from tests.kueue_bed import KueueBed, running, until

KIND = "htcondor"


@pytest.fixture(scope="module")
def bed() -> Iterator[KueueBed]:
    with running(f"condor-{os.getpid()}", sites=[KIND]) as found:
        yield found


def test_the_documented_job_runs_under_htcondor(bed: KueueBed) -> None:
    user = User(bed, f"t{uuid.uuid4().hex[:6]}")
    flavor = {"name": "sites", "natsFlavor": {"pools": [KIND], "virtualNode": VIRTUAL_NODE}}
    bed.apply(
        {
            "apiVersion": "vk.io/v1",
            "kind": "MasterQueue",
            "metadata": {"name": "mq"},
            "spec": {"flavors": [{**flavor, "canLendTo": [{"queue": user.name}]}]},
        }
    )
    user.queue(user.name)
    job = yaml.safe_load(DOCUMENTED.read_text())
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = user.name
    user.create(job)
    assert user.until_admitted("hello") == f"mq.sites.{KIND}"
    (pod,) = until(lambda: user.pods_of("hello"), what="the job's pod")
    user.until_phase(pod["metadata"]["name"], "Running")
    said = user.kubectl("logs", "-f", "job/hello", seconds=120)
    assert re.fullmatch(r"hello from \S+\nbye\n", said)
    user.until_job("hello", "Complete")
    state = user.pod(pod["metadata"]["name"])["status"]["containerStatuses"][0]["state"]
    assert (state["terminated"]["exitCode"], state["terminated"]["reason"]) == (0, "Completed")
    jobs = bed.site(KIND).home / "pool" / "jobs"
    uid = pod["metadata"]["uid"]
    assert uid in " ".join(path.name for path in jobs.iterdir())
    user.go()
    until(lambda: not remains(bed, [KIND], [uid]), 90, "the end of all at the site")
