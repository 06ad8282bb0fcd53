"""Error messages of sbatch, and the error classes that follow from them.

The texts are Slurm's own (its slurm_strerror). A message that none of them fits is a refusal if
sbatch says that the submission failed, and unclear otherwise: then the job is looked for before
anything else.
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

WRONG_OPTION = 255  # exit code of sbatch for a command line or an #SBATCH line it cannot read
_REFUSED = "Batch job submission failed: "
_PREFIX = re.compile(r"\bsbatch: (?:error|fatal): ")

# Text in a message of sbatch -> error class: the first one that fits counts.
SUBMIT_ERRORS: Sequence[tuple[str, type[SubmitterError]]] = (
    # The controller got the request, or may have got it; its response did not arrive.
    ("Socket timed out on send/recv operation", SubmitUnclear),
    ("Zero Bytes were transmitted or received", SubmitUnclear),
    ("Unexpected message received", SubmitUnclear),
    ("Connection reset by peer", SubmitUnclear),
    ("Message receive failure", SubmitUnclear),
    ("Message send failure", SubmitUnclear),
    ("Unexpected missing socket error", SubmitUnclear),
    ("Insane message length", SubmitUnclear),
    ("Unable to contact slurm controller", SubmitUnclear),
    ("Slurm backup controller in standby mode", SubmitUnclear),
    ("Slurm controller is in standby mode", SubmitUnclear),
    # Nothing responds at the moment.
    ("Protocol authentication error", BackendUnavailable),
    ("Invalid authentication credential", BackendUnavailable),
    ("munge", BackendUnavailable),
    ("Unable to establish configuration source", BackendUnavailable),
    ("Unable to resolve", BackendUnavailable),
    # Not now.
    ("MaxSubmit", NoRoom),
    ("GrpSubmit", NoRoom),
    ("Job violates accounting/QOS policy", NoRoom),
    ("Job violates accounting policy", NoRoom),
    ("MaxJobCount limit reached", NoRoom),
    ("System submissions disabled", NoRoom),
    ("Slurm temporarily unable to accept job", NoRoom),
    ("Slurm controller not responding", NoRoom),
    ("Resource temporarily unavailable", NoRoom),
    ("Required partition not available (inactive or drain)", NoRoom),
    ("Partition in DOWN state", NoRoom),
    ("Requested nodes are busy", NoRoom),
    ("Requested reservation not usable now", NoRoom),
    ("No space left on device", NoRoom),
    ("Unable to connect to database", NoRoom),
    # Never, as it is.
    ("Invalid partition name specified", SubmitRefused),
    ("Invalid account or account/partition combination specified", SubmitRefused),
    ("Invalid qos specification", SubmitRefused),
    ("Requested time limit is invalid", SubmitRefused),
    ("Memory specification can not be satisfied", SubmitRefused),
    ("Requested node configuration is not available", SubmitRefused),
    ("More processors requested than permitted", SubmitRefused),
    ("Node count specification invalid", SubmitRefused),
    ("Invalid generic resource (gres) specification", SubmitRefused),
    ("Invalid Trackable RESource (TRES) specification", SubmitRefused),
    ("Invalid feature specification", SubmitRefused),
    ("Invalid license specification", SubmitRefused),
    ("Invalid node name specified", SubmitRefused),
    ("Requested reservation is invalid", SubmitRefused),
    ("Job dependency problem", SubmitRefused),
    ("Job size specification needs at least one option", SubmitRefused),
    ("Access/permission denied", SubmitRefused),
    ("User's group not permitted to use this partition", SubmitRefused),
    ("Invalid user id", SubmitRefused),
    ("Pathname of a file, directory or other parameter too long", SubmitRefused),
)
# The name of a limit on the size of a job (QOSMaxCpuPerUserLimit), not on the number of jobs.
_TOO_LARGE = re.compile(r"\b(?:QOS|Assoc)(?:Max|Min|Grp)(?!\w*(?:Submit|Jobs))\w+")


def classify_submit_failure(failed: CommandFailed) -> SubmitterError:
    """Return the error that the failure of sbatch means for its job."""
    message = strip_prefixes(str(failed))
    if failed.code == WRONG_OPTION:
        return SubmitRefused(message)
    if _TOO_LARGE.search(message):
        return SubmitRefused(message)
    kind = classify_error(message, SUBMIT_ERRORS)
    if kind is not None:
        return kind(message)
    if "cannot be started" in message:
        return BackendUnavailable(message)
    if _REFUSED.strip() in str(failed):
        return SubmitRefused(message)
    return SubmitUnclear(message)


def strip_prefixes(text: str) -> str:
    """Remove sbatch's own prefixes from a message."""
    text = _PREFIX.sub("", text)
    return text.replace(_REFUSED, "")


def is_unnamed_limit(message: str) -> bool:
    """Return whether some limit is exceeded that may be one on the job's own size."""
    return "accounting" in message and "Submit" not in message.replace("job submit limit", "")


def is_controller_error(message: str) -> bool:
    """Return whether the controller did not respond."""
    vague = (SubmitUnclear, BackendUnavailable)
    return any(text in message for text, kind in SUBMIT_ERRORS if kind in vague)
