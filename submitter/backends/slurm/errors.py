"""What sbatch complains of, and what follows from it.

The texts are Slurm's own (its slurm_strerror); what none of them fits was a refusal if sbatch said
so in so many words, and unclear otherwise: then the job is looked for before anything else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from submitter.backends.commands import meaning
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

# Text of sbatch's, and what it means: the first one that fits counts.
SUBMIT_ERRORS: Sequence[tuple[str, type[SubmitterError]]] = (
    # The controller got the request, or may have got it; its answer did not come back.
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
    # Nobody can be asked anything at the moment.
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


def submit_error(failed: CommandFailed) -> SubmitterError:
    """What the failure of a submission means for its job."""
    words = sbatch_words(str(failed))
    if failed.code == WRONG_OPTION:
        return SubmitRefused(words)
    if _TOO_LARGE.search(words):
        return SubmitRefused(words)
    kind = meaning(words, SUBMIT_ERRORS)
    if kind is not None:
        return kind(words)
    if "cannot be started" in words:
        return BackendUnavailable(words)
    if _REFUSED.strip() in str(failed):
        return SubmitRefused(words)
    return SubmitUnclear(words)


def sbatch_words(text: str) -> str:
    """Its complaint without what only sbatch itself finds interesting."""
    text = _PREFIX.sub("", text)
    return text.replace(_REFUSED, "")


def is_policy(words: str) -> bool:
    """Whether a limit was named without saying which: it may be one on the job's own size."""
    return "accounting" in words and "Submit" not in words.replace("job submit limit", "")


def is_trouble(words: str) -> bool:
    """Whether it is the controller that did not answer."""
    vague = (SubmitUnclear, BackendUnavailable)
    return any(text in words for text, kind in SUBMIT_ERRORS if kind in vague)
