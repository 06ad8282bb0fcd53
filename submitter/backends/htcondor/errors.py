"""Error messages of condor_submit, and the error classes that follow from them.

The texts are HTCondor's own. A message that none of them fits is unclear: then the job is looked
for before anything else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from submitter.backends.commands import classify_error
from submitter.common.errors import (
    BackendUnavailable,
    CommandFailed,
    NoRoom,
    SubmitRefused,
    SubmitterError,
    SubmitUnclear,
)

_PREFIX = re.compile(r"\b(?:ERROR|WARNING|condor_submit): *")

# Text in a message of condor_submit -> error class: the first one that fits counts.
SUBMIT_ERRORS: Sequence[tuple[str, type[SubmitterError]]] = (
    # Not now.
    ("MAX_JOBS_SUBMITTED", NoRoom),
    ("MAX_JOBS_PER_OWNER", NoRoom),
    ("would exceed", NoRoom),
    ("No space left on device", NoRoom),
    # Never, as it is.
    ("MAX_JOBS_PER_SUBMISSION", SubmitRefused),
    ("SUBMIT_REQUIREMENT", SubmitRefused),
    ("submit requirement", SubmitRefused),
    ("Parse error in expression", SubmitRefused),
    ("Could not get attribute references from", SubmitRefused),
    ("Invalid accounting_group", SubmitRefused),
    ("No such directory", SubmitRefused),
    ("is not a valid", SubmitRefused),
    ("invalid", SubmitRefused),
    # Nothing responds at the moment; nothing has been submitted.
    ("Failed to connect to local queue manager", BackendUnavailable),
    ("Failed to connect to queue manager", BackendUnavailable),
    ("Can't find address of", BackendUnavailable),
    ("cannot be started", BackendUnavailable),
    # The access point got the job, or may have got it; its response did not arrive.
    ("Failed to commit job submission into the queue", SubmitUnclear),
    ("took longer than", SubmitUnclear),
)


def classify_submit_failure(failed: CommandFailed) -> SubmitterError:
    """Return the error that the failure of condor_submit means for its job."""
    message = _PREFIX.sub("", str(failed)).strip()
    return (classify_error(message, SUBMIT_ERRORS) or SubmitUnclear)(message)
