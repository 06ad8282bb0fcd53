"""What every batch system has to do alike, on a real HTCondor, by submitters beside its schedd."""

from __future__ import annotations

import pytest

from tests.submitter import test_backend_conformance as conformance
from tests.submitter.at_a_site import *  # noqa: F403 - its fixtures are used here
from tests.submitter.test_backend_conformance import *  # noqa: F403 - its tests are run here

conformance.BACKENDS["htcondor"] = {"backend": "htcondor"}
conformance.ONE_AT_A_TIME["htcondor"] = {"options": {"commands": {"concurrency_limits": "one"}}}

pytestmark = [  # type: ignore[assignment] # in place of the one that was imported
    pytest.mark.htcondor,
    pytest.mark.parametrize("backend", ["htcondor"]),
]
