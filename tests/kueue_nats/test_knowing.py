"""What Kueue knows, by what one look after the other shows of the probe."""

from __future__ import annotations

from typing import Any

from kueue_nats.knowing import IN_USE, PATIENCE_S, Knowing, Known

OURS = {"ownerReferences": [{"uid": "mq-uid"}]}


def flavor(uid: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "finalizers": [IN_USE], **OURS, **metadata}}


def queue(*names: str, uid: str = "mq-uid") -> dict[str, Any]:
    groups = [{"flavors": [{"name": name} for name in names]}]
    owners = [{"uid": uid}]
    return {"metadata": {"ownerReferences": owners}, "spec": {"resourceGroups": groups}}


class Looks:
    """One look after the other at what a test says is there."""

    def __init__(self) -> None:
        self.knowing = Knowing("mq", "mq-uid")
        self.flavors: dict[str, dict[str, Any]] = {}
        self.queues: dict[str, dict[str, Any]] = {}
        self.now_s = 50.0

    def look(self) -> Known:
        usable = frozenset(self.flavors) - {"mq.probe"}
        return self.knowing.look(usable, self.flavors, self.queues, self.now_s)


def test_a_flavor_is_known_when_a_later_probe_is_gone() -> None:
    looks = Looks()
    looks.flavors["f"] = flavor("f1")
    assert looks.look() == Known(frozenset(), ("f",), 0.0, is_probed=True)
    looks.flavors["mq.probe"] = flavor("p1")
    assert not looks.look().is_probed  # it has been there together with f: it may go
    looks.flavors["mq.probe"] = flavor("p1", deletionTimestamp="now")
    looks.now_s += 3
    assert looks.look() == Known(frozenset(), ("f",), 3.0, is_probed=False)
    del looks.flavors["mq.probe"]
    assert looks.look() == Known(frozenset("f"), (), 0.0, is_probed=False)


def test_one_that_came_after_the_probe_began_to_go_needs_another() -> None:
    looks = Looks()
    looks.flavors.update({"f": flavor("f1"), "mq.probe": flavor("p1")})
    looks.look()
    looks.flavors.update({"g": flavor("g1"), "mq.probe": flavor("p1", deletionTimestamp="now")})
    looks.look()
    del looks.flavors["mq.probe"]
    assert looks.look() == Known(frozenset("f"), ("g",), 0.0, is_probed=True)


def test_a_flavor_that_was_made_anew_is_another_one() -> None:
    looks = Looks()
    looks.flavors.update({"f": flavor("f1"), "mq.probe": flavor("p1")})
    looks.look()
    del looks.flavors["mq.probe"]
    assert looks.look().flavors == {"f"}
    looks.flavors["f"] = flavor("f2")
    assert looks.look().unsure == ("f",)


def test_what_our_queues_name_is_known_and_what_others_name_is_not() -> None:
    looks = Looks()
    looks.flavors.update({"f": flavor("f1"), "g": flavor("g1")})
    looks.queues.update({"mq": queue("f"), "other": queue("g", uid="other-uid")})
    assert looks.look() == Known(frozenset("f"), ("g",), 0.0, is_probed=True)


def test_a_probe_that_somebody_else_has_sent_away_proves_nothing() -> None:
    looks = Looks()
    looks.flavors.update({"f": flavor("f1"), "mq.probe": flavor("p1", deletionTimestamp="now")})
    assert not looks.look().is_probed  # it has to be gone first
    del looks.flavors["mq.probe"]
    assert looks.look() == Known(frozenset(), ("f",), 0.0, is_probed=True)


def test_a_probe_that_kueue_does_not_hold_would_prove_nothing() -> None:
    looks = Looks()
    looks.flavors.update({"f": flavor("f1"), "mq.probe": flavor("p1", finalizers=[])})
    assert looks.look().is_probed
    looks.flavors["mq.probe"] = flavor("p2", finalizers=None)
    assert looks.look() == Known(frozenset(), ("f",), 0.0, is_probed=True)


def test_nothing_is_asked_when_there_is_nothing_to_know() -> None:
    looks = Looks()
    assert looks.look() == Known(frozenset(), (), 0.0, is_probed=False)
    looks.flavors["mq.probe"] = flavor("p1")  # left by an operator that was killed
    assert not looks.look().is_probed


def test_answers_are_expected_soon_for_some_time_only() -> None:
    looks = Looks()
    assert not looks.look().soon
    looks.flavors["f"] = flavor("f1")
    assert looks.look().soon
    looks.now_s += PATIENCE_S
    assert not looks.look().soon
