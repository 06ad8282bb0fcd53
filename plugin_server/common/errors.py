"""What the plugin answers when it cannot do what interLink asks: one line, and an HTTP status.

    Refused            the request was understood, and the answer is no
    ├── Malformed      the request is not what interLink sends
    ├── Busy           too many others wait already
    └── Deleted        the pod is not wanted any more

The line is what a user reads in ``kubectl describe pod``: what, where, and whose turn it is.
"""

from __future__ import annotations

from templates.common.errors import InterlinkNatsError, one_line


class Refused(InterlinkNatsError):
    """No, in one line; the status is 4xx if the pod must change, 5xx if something else must."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(one_line(words, 600))
        self.status = status


class Malformed(Refused):
    """The request is not what interLink sends."""

    def __init__(self, words: str) -> None:
        super().__init__(400, words)


class Busy(Refused):
    """Too many others wait already."""

    def __init__(self, words: str) -> None:
        super().__init__(503, words)


class Deleted(Refused):
    """The pod is not wanted any more."""

    def __init__(self, pod: str) -> None:
        super().__init__(409, f"nothing was submitted: the pod {pod} was deleted before")
