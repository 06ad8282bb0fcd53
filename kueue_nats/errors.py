"""What can go wrong between the operator and the cluster.

InterlinkNatsError
├── SpecError          a MasterQueue asks what cannot be given
└── ClusterError       the Kubernetes API did not do it
    ├── Missing        there is no such object, or no such kind
    ├── Conflicting    somebody else changed or made it meanwhile
    ├── Rejected       it, or a webhook of Kueue's, says that the object is wrong
    ├── NotAllowed     our ServiceAccount may not
    └── Unreachable    it cannot be asked at the moment
"""

from __future__ import annotations

from templates.errors import InterlinkNatsError, Located, one_line


class SpecError(Located):
    """A MasterQueue is wrong: ``where`` is the field."""


class ClusterError(InterlinkNatsError):
    """A call to the Kubernetes API failed; one line, fit for a condition."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{one_line(self.what, 160)}: {one_line(self.why)}"


class Missing(ClusterError):
    """There is no such object, or the API server does not know its kind."""


class Conflicting(ClusterError):
    """It was changed, or made, by somebody else meanwhile."""


class Rejected(ClusterError):
    """The API server, or a webhook, refuses what the object says."""


class NotAllowed(ClusterError):
    """The credentials do not allow it."""


class Unreachable(ClusterError):
    """No answer, or one that says to come back."""
