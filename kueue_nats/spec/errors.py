"""Errors between the operator and the cluster.

InterlinkNatsError
├── SpecError          a field of a MasterQueue is not valid
└── KueueClientError   a call to the Kubernetes API failed
    ├── NotFound       there is no such object, or no such kind
    ├── Conflicting    the object was changed or created meanwhile
    ├── Rejected       the API server, or a webhook of Kueue, rejects the object
    ├── NotAllowed     our ServiceAccount may not
    └── Unreachable    no response, or one that says to retry
"""

from __future__ import annotations

from templates.common.errors import InterlinkNatsError, Located, one_line


class SpecError(Located):
    """Error in a MasterQueue: ``field`` names its place."""


class KueueClientError(InterlinkNatsError):
    """Failed call to the Kubernetes API; one line, fit for a condition."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{one_line(self.what, 160)}: {one_line(self.why)}"


class NotFound(KueueClientError):
    """Unknown object, or a kind that the API server does not serve."""


class Conflicting(KueueClientError):
    """Object that was changed or created meanwhile."""


class Rejected(KueueClientError):
    """Object that the API server, or a webhook, rejects."""


class NotAllowed(KueueClientError):
    """Credentials that do not allow the call."""


class Unreachable(KueueClientError):
    """No answer, or one that says to retry."""
