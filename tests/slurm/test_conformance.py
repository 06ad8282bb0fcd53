"""What every batch system has to do alike, on a real Slurm, by submitters on its login node."""

from __future__ import annotations

import pytest

from tests.submitter import test_backend_conformance as conformance
from tests.submitter.at_a_site import *  # noqa: F403 - its fixtures are used here
from tests.submitter.test_backend_conformance import *  # noqa: F403 - its tests are run here

conformance.BACKENDS["slurm"] = {"backend": "slurm"}
conformance.ONE_AT_A_TIME["slurm"] = {"options": {"flags": ["--partition=limited"]}}

pytestmark = [  # type: ignore[assignment] # in place of the one that was imported
    pytest.mark.slurm,
    pytest.mark.parametrize("backend", ["slurm"]),
]
