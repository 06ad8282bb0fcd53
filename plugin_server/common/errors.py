"""Errors that the plugin returns to interLink: a message of one line, and an HTTP status.

    Refused            the request was rejected
    ├── Malformed      it is not a request of interLink
    ├── Busy           too many requests are waiting
    └── Deleted        the pod was deleted before

A user reads the message in ``kubectl describe pod``: what is wrong, where, and who can mend it.
"""

from __future__ import annotations

from templates.common.errors import InterlinkNatsError, one_line


class Refused(InterlinkNatsError):
    """Rejected request; the status is 4xx if the pod must change, 5xx if something else must."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(one_line(message, 600))
        self.status = status


class Malformed(Refused):
    """Request that interLink does not send."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message)


class Busy(Refused):
    """Request beyond the limit of those that may wait."""

    def __init__(self, message: str) -> None:
        super().__init__(503, message)


class Deleted(Refused):
    """Create of a pod that was deleted before."""

    def __init__(self, pod: str) -> None:
        super().__init__(409, f"nothing was submitted: the pod {pod} was deleted before")
