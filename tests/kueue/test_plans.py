"""Whatever pools publish and admins ask for: Kueue's webhooks accept every plan."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kueue_nats.kube.client import connect
from kueue_nats.plan import objects as kueue_objects
from kueue_nats.plan import planner
from kueue_nats.plan.diff import is_superset
from kueue_nats.plan.objects import FLAVORS, QUEUES
from kueue_nats.pools.tracker import current_offers, restored_record
from kueue_nats.spec import masterqueue
from kueue_nats.spec.errors import Rejected
from templates.protocol.publications import Resources
from tests.support.kueue_bed import KueueBed

pytestmark = pytest.mark.both_kueues

QUANTITIES = st.one_of(
    st.sampled_from(
        ["0", "1", "100", "1500m", "1Ki", "2.5Gi", "3E", "9000000P", "1n", "1e3", "0.1"]
    ),
    st.integers(0, 10**7).map(str),
)
RESOURCES = st.sampled_from(
    [
        "cpu",
        "memory",
        "pods",
        "ephemeral-storage",
        "nvidia.com/gpu",
        "example.org/licence",
        "hugepages-2Mi",
    ]
)
HOSTILE = st.one_of(RESOURCES, st.text(max_size=70))
AMOUNTS = st.dictionaries(RESOURCES, QUANTITIES, max_size=5)
POOLS = st.from_regex(r"[A-Za-z0-9_-]{1,63}", fullmatch=True)
LABELS = st.lists(
    st.one_of(st.sampled_from(["site=a", "a.b/c=d", "x="]), st.text(max_size=20)), max_size=4
)
TAINTS = st.lists(
    st.one_of(
        st.sampled_from(["k=v:NoSchedule", "k:NoExecute", "a.b/c=:NoSchedule"]),
        st.text(max_size=20),
    ),
    max_size=9,
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    queues = ["one", "two", "three"]
    lends = st.lists(
        st.fixed_dictionaries({"queue": st.sampled_from(queues), "lendingLimit": AMOUNTS}),
        max_size=3,
        unique_by=lambda lending: lending["queue"],
    )
    flavors = [
        {
            "name": f"flavor-{number}",
            "natsFlavor": {"poolRegExp": draw(st.sampled_from([".*", "[A-Z].*", "[a-z_-].*"]))},
            "nominalQuota": draw(AMOUNTS),
            "borrowingLimit": draw(AMOUNTS),
            "canLendTo": draw(lends),
        }
        for number in range(draw(st.integers(1, 3)))
    ]
    local = {"name": "local", "localFlavor": {}, "nominalQuota": draw(AMOUNTS)}
    flavors.insert(draw(st.integers(0, len(flavors))), {**local, "canLendTo": draw(lends)})
    template = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "queueingStrategy": st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
                "stopPolicy": st.sampled_from(["None", "Hold", "HoldAndDrain"]),
                "flavorFungibility": st.fixed_dictionaries(
                    {"whenCanBorrow": st.sampled_from(["Borrow", "MayStopSearch", "TryNextFlavor"])}
                ),
                "preemption": st.fixed_dictionaries(
                    {"reclaimWithinCohort": st.sampled_from(["Never", "LowerPriority", "Any"])}
                ),
                "fairSharing": st.fixed_dictionaries({"weight": st.sampled_from(["1", "0.5", 2])}),
            },
        )
    )
    return {"flavors": flavors, "template": template}


OFFERED = st.dictionaries(
    POOLS,
    st.tuples(st.dictionaries(HOSTILE, QUANTITIES, max_size=6), LABELS, TAINTS, st.booleans()),
    max_size=8,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=specs(), offered=OFFERED, drain=st.booleans())
def test_every_plan_is_accepted(
    bed: KueueBed, spec: dict[str, Any], offered: dict[str, Any], drain: bool
) -> None:
    cluster = connect(str(bed.kubeconfig))
    version = cluster.kueue_version()
    uid = str(uuid.uuid4())
    raw = {"metadata": {"name": "planned.queue", "uid": uid}, "spec": spec}
    if drain and offered:
        raw["metadata"]["annotations"] = {masterqueue.DRAIN_ANNOTATION: next(iter(offered))}
    wanted = masterqueue.read(raw)
    heard = {}
    for group in wanted.groups:
        if group.nats is not None:
            records = {
                (group.nats.source, pool): restored_record(
                    Resources(pool, quotas, tuple(labels), tuple(taints), draining), 0, 0
                )
                for pool, (quotas, labels, taints, draining) in offered.items()
            }
            heard[group.name] = current_offers(records, group.nats, 0)
    plan = planner.plan(wanted, heard, ["local"])
    owner = kueue_objects.owner_reference(raw)
    for flavor in plan.flavors:
        body = kueue_objects.resource_flavor(flavor, owner, version)
        assert is_superset(cluster.apply(FLAVORS, body, dry_run=True), body)
    for queue in plan.queues:
        body = kueue_objects.cluster_queue(queue, owner, version)
        assert is_superset(
            cluster.apply(QUEUES, body, dry_run=True), body
        )  # else it would never end


def test_kueue_would_refuse_what_is_wrong_in_a_trial_too(bed: KueueBed) -> None:
    cluster = connect(str(bed.kubeconfig))
    quota = {"name": "cpu", "nominalQuota": "1", "lendingLimit": "2"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
    body = {
        "apiVersion": f"kueue.x-k8s.io/{cluster.kueue_version()}",
        "kind": "ClusterQueue",
        "metadata": {"name": "planned.queue"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }
    with pytest.raises(Rejected, match="lendingLimit"):
        cluster.apply(QUEUES, body, dry_run=True)
