"""What every batch system has to do alike, on a real Slurm, by submitters on its login node."""

from __future__ import annotations

from tests.unit.submitter.at_a_site import *  # noqa: F403 - its fixtures are used here
from tests.unit.submitter.conformance import Conformance


class TestSlurm(Conformance):
    pool = {"backend": "slurm"}
    one_at_a_time = {"options": {"flags": ["--partition=limited"]}}
