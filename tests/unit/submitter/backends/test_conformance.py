"""What every batch system has to do alike, as plain processes of this machine."""

from __future__ import annotations

from tests.unit.submitter.conformance import Conformance


class TestHost(Conformance):
    pool = {"backend": "host", "options": {"cpu": "8", "pods": "8"}}
    one_at_a_time = {"options": {"pods": "1"}}
    ends_orphans = True
