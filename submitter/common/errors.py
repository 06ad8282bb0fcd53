"""What can go wrong at a site, as one tree below the project's own.

    InterlinkNatsError
    └── SubmitterError
        ├── Forbidden             the site's policy, or what its batch system can ever give, says no
        ├── CommandFailed         a program could not be started, failed, or took too long
        ├── NoRoom                the batch system takes no more jobs at the moment
        ├── SubmitRefused         the batch system said no to a job, for good
        ├── SubmitUnclear         nobody knows whether the batch system has taken a job
        ├── BackendUnavailable    the batch system could not be asked
        ├── IssuerRefused         who gives tokens said no
        └── IssuerUnavailable     who gives tokens could not be asked

Every message is one line, for ``kubectl describe`` and for the log; none holds anything secret.
"""

from __future__ import annotations

from templates.common.errors import InterlinkNatsError, one_line


class SubmitterError(InterlinkNatsError):
    """The root of what a submitter raises on purpose."""


class Forbidden(SubmitterError):
    """The site does not run such a job."""


class CommandFailed(SubmitterError):
    """A program did not do what it was started for."""

    def __init__(self, program: str, what: str, code: int = -1, output: str = "") -> None:
        super().__init__(one_line(f"{program}: {what}"))
        self.code = code
        """Its exit code; negative when it has none."""
        self.output = output
        """What it wrote to standard output all the same."""


class NoRoom(SubmitterError):
    """Not now: the job keeps its place in the queue; the words say what it waits for."""


class SubmitRefused(SubmitterError):
    """The job will never be taken as it is."""


class SubmitUnclear(SubmitterError):
    """The job may have been taken: it has to be looked for before it is submitted again."""


class BackendUnavailable(SubmitterError):
    """The batch system did not answer: nothing is known, so nothing changes."""


class IssuerRefused(SubmitterError):
    """An OpenID issuer does not give us a token: somebody has to do something about it."""


class IssuerUnavailable(SubmitterError):
    """An OpenID issuer did not answer, or not what can be understood: asked again later."""

    def __init__(self, what: str, pause_s: float = 0.0) -> None:
        super().__init__(one_line(what))
        self.pause_s = pause_s
        """For how long it asks to be left alone."""
