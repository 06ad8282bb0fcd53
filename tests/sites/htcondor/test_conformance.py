"""What every batch system has to do alike, on a real HTCondor, by submitters beside its schedd."""

from __future__ import annotations

from tests.unit.submitter.at_a_site import *  # noqa: F403 - its fixtures are used here
from tests.unit.submitter.conformance import Conformance


class TestHtcondor(Conformance):
    pool = {"backend": "htcondor"}
    one_at_a_time = {"options": {"commands": {"concurrency_limits": "one"}}}
