"""The cluster that pods come from and the one that they run in, both real, at the same time.

Of the first one only its API server has to be there: a token is what it has given, and is worth
what it says of it.
"""

from __future__ import annotations

import json
import os
import ssl
import uuid
from collections.abc import Iterator

import pytest
import urllib3

from scripts.lib.interlink import create_request
from templates.job.model import Job
from templates.pod.create_request import read_create_request
from templates.translation.build import build
from tests.sites.kubernetes.pool import ACCOUNT, CONFIG, IMAGE, Cluster, job_of, user_of
from tests.support.kueue_bed import KueueBed, running
from tests.support.script_runner import config_map, pod
from tests.unit.submitter.rig import Centre, Submitter, eventually

THERE = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME = "kube-api-access-abcde"


@pytest.fixture(scope="module")
def first() -> Iterator[KueueBed]:
    with running(f"first-{os.getpid()}", node=False) as bed:
        yield bed


def job_with_token(token: str, authority: str, script: str) -> Job:
    """The job of a pod that has its service account's token, as interLink sends it."""
    mounts = [{"name": VOLUME, "mountPath": THERE, "readOnly": True}]
    sources = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
            }
        },
    ]
    container = {"image": IMAGE, "command": ["bash", "-c", script], "volumeMounts": mounts}
    spec = {"volumes": [{"name": VOLUME, "projected": {"sources": sources}}]}
    texts = [pod(container, **spec), config_map("kube-root-ca.crt", data={"ca.crt": authority})]
    request = create_request([(str(n), json.dumps(text)) for n, text in enumerate(texts)])
    (volume,) = request["container"][0]["projectedvolumemaps"]
    volume["data"].update(token=token, namespace="default")
    return build(read_create_request(json.dumps(request).encode()), CONFIG)


def test_two_clusters_have_the_same_ports_and_do_not_meet(
    cluster: Cluster, first: KueueBed
) -> None:
    second = cluster.bed
    assert first.server != second.server
    assert first.server.rpartition(":")[2] == second.server.rpartition(":")[2]
    name = f"only-here-{uuid.uuid4().hex[:6]}"
    first.kubectl("create", "namespace", name)
    there = {item["metadata"]["name"] for item in second.get("namespaces")["items"]}
    assert name not in there and "default" in there
    uids = {bed.get("namespace", "kube-system")["metadata"]["uid"] for bed in (first, second)}
    assert len(uids) == 2
    # Neither believes the other one's certificate.
    pool = urllib3.PoolManager(ssl_context=ssl.create_default_context(cadata=first.authority))
    with pytest.raises(urllib3.exceptions.HTTPError, match="CERTIFICATE_VERIFY_FAILED"):
        pool.request("GET", f"{second.server}/version", retries=False)


def test_the_token_that_a_pod_has_is_that_of_the_first_cluster_alone(
    submitter: Submitter, centre: Centre, cluster: Cluster, namespace: str, first: KueueBed
) -> None:
    token = first.token("default")
    script = (
        f"ls {THERE}; echo @; cat {THERE}/token; echo; echo @; cat {THERE}/ca.crt; echo @; "
        f"cat {THERE}/namespace; echo; echo @; ls -R /var/run /run; echo @; sleep 1000"
    )
    job = job_with_token(token, first.authority, script)
    assert centre.create(job) == {"state": "journaled"}
    said = eventually(lambda: _whole(centre.logs(job.name, "c0").decode()), 90)
    listed, found, authority, told, everything, _ = (part.strip() for part in said.split("@\n"))
    assert listed.split() == ["ca.crt", "namespace", "token"]
    assert (found, authority, told) == (token, first.authority.strip(), "default")
    assert everything.count("token") == 1  # ..data/token is a link that is not followed
    assert user_of(first, found) == "system:serviceaccount:default:default"
    assert user_of(cluster.bed, found) == ""
    spec = cluster.pod(namespace, job.name)["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert not [volume for volume in spec["volumes"] if "projected" in volume]
    # What the submitter itself has is good in the second cluster, and in no pod.
    own = cluster.bed.token(ACCOUNT, namespace)
    assert user_of(cluster.bed, own) == f"system:serviceaccount:{namespace}:{ACCOUNT}"
    assert user_of(first, own) == ""
    centre.delete(job.name, 0)
    centre.until_gone(job.name)
    eventually(lambda: not cluster.names(namespace, "pods,secrets,configmaps"))


def test_a_pod_of_the_second_cluster_has_no_way_to_the_first(
    submitter: Submitter, centre: Centre, cluster: Cluster, first: KueueBed
) -> None:
    address = first.server.partition("//")[2].replace(":", "/")
    own = cluster.bed.server.partition("//")[2].replace(":", "/")
    job = job_of(f": </dev/tcp/{own} || exit 9; ! : </dev/tcp/{address}")
    centre.create(job)
    assert centre.ended(job.name, 90).exit_code == 0, centre.logs(job.name)


def _whole(said: str) -> str:
    """What the pod says, once it has said all of it."""
    return said if said.count("@\n") == 5 else ""
