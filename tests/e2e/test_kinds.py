"""The other kinds of sites: under HTCondor, on a podman host, and in a cluster of the site's own.

They have a chain for themselves: that of the other tests has sites that run pods in one way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.places import Places
from tests.e2e.queues import Queue
from tests.e2e.remains import remains
from tests.e2e.rows import ROWS
from tests.e2e.test_job import DOCUMENTED
from tests.e2e.users import VIRTUAL_NODE, User, goes_to
from tests.sites.kubernetes.pool import user_of
from tests.support.kueue_bed import KueueBed, running, until
from tests.support.script_runner import pod, sh

KINDS = ("htcondor", "kubernetes", "podman")
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module")
def chain() -> Iterator[KueueBed]:
    with running(f"kinds-{os.getpid()}", sites=KINDS) as found:
        yield found
    folder = found.kubeconfig.parent.parent
    # Who has held the bed for us looks after it once more, and goes.
    until(lambda: not list(folder.glob(f"{found.name}*")), 30, "the end of both clusters")


@pytest.mark.parametrize("site", KINDS)
def test_the_documented_job_runs_there(chain: KueueBed, queue: Queue, site: str) -> None:
    user = queue.user
    queue.sites["pools"] = [site]
    queue.apply()
    queue.until_pools(**{site: "Active"})
    job: dict[str, Any] = yaml.safe_load(DOCUMENTED.read_text())
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue.borrower
    user.create(job)
    assert user.until_admitted("hello") == queue.flavor(site)
    (found,) = until(lambda: user.pods_of("hello"), what="the job's pod")
    name, uid = found["metadata"]["name"], found["metadata"]["uid"]
    until(lambda: is_queued(chain, site, uid), what="its place in the batch system")
    until(lambda: user.log(name), what="its first line")
    said = user.kubectl("logs", "-f", "job/hello", seconds=120)
    assert re.fullmatch(r"hello from \S+\nbye\n", said)
    user.until_job("hello", "Complete")
    ended = user.pod(name)
    assert (ended["spec"]["nodeName"], ended["status"]["phase"]) == (VIRTUAL_NODE, "Succeeded")
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (0, "Completed")
    assert user.log(name) == said
    user.kubectl("delete", "job", "hello")
    until(lambda: not remains(chain, KINDS, [uid]), 120, "the end of all at the site")


def is_queued(chain: KueueBed, site: str, uid: str) -> bool:
    """Whether the site's batch system, or what it has instead, knows of a pod."""
    return any(line.startswith(f"{site}: queue ") for line in remains(chain, [site], [uid]))


def test_a_pod_in_the_sites_cluster_has_the_token_of_the_first(chain: KueueBed, user: User) -> None:
    """Whose virtual kubelet has asked for it; that of the site's cluster knows nothing of it."""
    node = {"kubernetes.io/hostname": VIRTUAL_NODE}
    spec = {"nodeSelector": node, "tolerations": goes_to("kubernetes")}
    user.create(pod(sh(f"ls {TOKEN}; cat {TOKEN}/token"), name="token", **spec))
    user.until_ended("token")
    *files, token = user.log("token").split()
    assert {"ca.crt", "namespace", "token"} == {*files}
    assert user_of(chain, token) == f"system:serviceaccount:{user.name}:default"
    assert user_of(chain.cluster_of("kubernetes"), token) == ""


@pytest.fixture(scope="module")
def places(chain: KueueBed) -> Iterator[Places]:
    found = Places(chain, KINDS)
    yield found
    found.leave()


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("site", KINDS)
def test_a_row_ends_there_as_on_a_real_node(places: Places, site: str, name: str) -> None:
    places.compare(site, name)
