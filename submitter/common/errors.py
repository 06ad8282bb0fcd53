"""The errors of a site, as one tree below the project's own.

    InterlinkNatsError
    └── SubmitterError
        ├── Forbidden             the site's policy or its batch system does not allow such a job
        ├── CommandFailed         a program could not be started, failed, or took too long
        ├── NoRoom                the batch system takes no more jobs at the moment
        ├── SubmitRefused         the batch system refused a job, for good
        ├── SubmitUnclear         the batch system may have taken a job
        ├── BackendUnavailable    the batch system did not answer
        ├── IssuerRefused         the issuer refused a token
        └── IssuerUnavailable     the issuer did not answer

Every message is one line, for ``kubectl describe`` and for the log; none holds anything secret.
"""

from __future__ import annotations

from templates.common.errors import InterlinkNatsError, one_line


class SubmitterError(InterlinkNatsError):
    """The base class of all errors that a submitter raises."""


class Forbidden(SubmitterError):
    """A job that this site does not run."""


class CommandFailed(SubmitterError):
    """A program that failed, timed out, or could not be started."""

    def __init__(self, program: str, message: str, code: int = -1, output: str = "") -> None:
        super().__init__(one_line(f"{program}: {message}"))
        self.code = code
        """The exit code; negative if there is none."""
        self.output = output
        """The standard output up to the failure."""


class NoRoom(SubmitterError):
    """A job that is not taken now: it stays first in our queue; the message says why it waits."""


class SubmitRefused(SubmitterError):
    """A job that will never be taken as it is."""


class SubmitUnclear(SubmitterError):
    """A job that may have been taken: it is looked for before it is submitted again."""


class BackendUnavailable(SubmitterError):
    """No answer from the batch system, so no state changes."""


class IssuerRefused(SubmitterError):
    """A refusal of an OpenID issuer: somebody has to do something about it."""


class IssuerUnavailable(SubmitterError):
    """No valid response from an OpenID issuer: the request is tried again later."""

    def __init__(self, message: str, pause_s: float = 0.0) -> None:
        super().__init__(one_line(message))
        self.pause_s = pause_s
        """The pause that the issuer asks for."""
