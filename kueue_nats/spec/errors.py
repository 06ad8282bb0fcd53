"""Errors between the operator and the cluster.

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

from templates.common.errors import InterlinkNatsError, Located, one_line


class SpecError(Located):
    """Error in a MasterQueue: ``field`` names its place."""


class ClusterError(InterlinkNatsError):
    """Failed call to the Kubernetes API; one line, fit for a condition."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{one_line(self.what, 160)}: {one_line(self.why)}"


class Missing(ClusterError):
    """No such object, or a kind that the API server does not know."""


class Conflicting(ClusterError):
    """An object that somebody else has changed, or made, meanwhile."""


class Rejected(ClusterError):
    """An object that the API server, or a webhook, refuses."""


class NotAllowed(ClusterError):
    """Credentials that do not allow the call."""


class Unreachable(ClusterError):
    """No answer, or one that says to retry."""
