"""Who leads: only one at a time, whatever the clocks of others say."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kueue_nats.kube.lease import ObservedLease, can_acquire, lease_body, observe


class Leases:
    """A lease at an API server: a write counts only against the version that was read."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.number = 0

    def write(self, wanted: dict[str, Any]) -> bool:
        there = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if wanted["metadata"].get("resourceVersion") != there:
            return False
        self.number += 1
        metadata = {**wanted["metadata"], "resourceVersion": str(self.number)}
        self.lease = {**wanted, "metadata": metadata}
        return True


def test_a_lease_that_nobody_has_is_taken() -> None:
    assert can_acquire(None, "me", 0, 15)
    assert can_acquire(ObservedLease("", "1", 0), "me", 0, 15)
    assert can_acquire(ObservedLease("me", "1", 0), "me", 0, 15)


def test_that_of_another_is_taken_when_it_has_not_changed_for_its_time() -> None:
    leases = Leases()
    leases.write(lease_body(None, "kueue-nats", "other", 15, 10**9))  # a clock that is far off
    seen = observe(leases.lease, None, 100)
    assert not can_acquire(seen, "me", 100, 15)
    seen = observe(leases.lease, seen, 114)
    assert not can_acquire(seen, "me", 114, 15)
    seen = observe(leases.lease, seen, 115)
    assert can_acquire(seen, "me", 115, 15)


def test_a_renewal_begins_its_time_anew() -> None:
    leases = Leases()
    leases.write(lease_body(None, "kueue-nats", "other", 15, 0))
    seen = observe(leases.lease, None, 100)
    leases.write(lease_body(leases.lease, "kueue-nats", "other", 15, 0))
    assert not can_acquire(observe(leases.lease, seen, 115), "me", 115, 15)


def test_it_says_since_when_and_how_often_it_changed_hands() -> None:
    leases = Leases()
    leases.write(lease_body(None, "kueue-nats", "one", 15, 0))
    leases.write(lease_body(leases.lease, "kueue-nats", "one", 15, 5))
    assert leases.lease is not None
    spec = leases.lease["spec"]
    assert (spec["acquireTime"], spec["renewTime"]) == (
        "1970-01-01T00:00:00.000000Z",
        "1970-01-01T00:00:05.000000Z",
    )
    assert spec["leaseTransitions"] == 0
    leases.write(lease_body(leases.lease, "kueue-nats", "two", 15, 9))
    assert leases.lease["spec"]["leaseTransitions"] == 1
    assert leases.lease["spec"]["acquireTime"] == "1970-01-01T00:00:09.000000Z"


@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=60))
def test_two_never_lead_at_once(steps: list[tuple[str, int]]) -> None:
    """Each holds itself for a leader until a third of the lease's time before its end."""
    leases, now_s, lease_s = Leases(), 0.0, 15
    seen: dict[str, ObservedLease | None] = {}
    led_until: dict[str, float] = {}
    for who, wait in steps:
        now_s += wait
        there = leases.lease
        seen[who] = observe(there, seen.get(who), now_s)
        if not can_acquire(seen[who], who, now_s, lease_s):
            continue
        if leases.write(lease_body(there, "kueue-nats", who, lease_s, now_s)):
            led_until[who] = now_s + lease_s / 3  # then it looks again
            assert [other for other, end in led_until.items() if end > now_s] == [who]
