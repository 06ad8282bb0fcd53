"""HTCondor's programs, as a pool's options name them, with a token where they need one."""

from __future__ import annotations

from collections.abc import Sequence

from submitter.backends.commands import CommandRunner
from submitter.backends.htcondor.options import Options
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import environment_with
from submitter.tokens.token import make_tokens


class HTCondorCommands(CommandRunner):
    """The programs of one pool's HTCondor."""

    def __init__(self, options: Options, folder: str, ask: AskNats = not_connected) -> None:
        self._tokens = make_tokens(options.tokens, folder, ask)
        self._issuer = options.tokens.issuer
        credentials = {}
        if self._tokens is not None:
            credentials["BEARER_TOKEN_FILE"] = self._tokens.path
            credentials["_CONDOR_SEC_CLIENT_AUTHENTICATION_METHODS"] = "SCITOKENS"
        remote = options.remote
        if remote.ca_file:
            credentials["_CONDOR_AUTH_SSL_CLIENT_CAFILE"] = remote.ca_file
            credentials["_CONDOR_AUTH_SSL_CLIENT_USE_DEFAULT_CAS"] = "false"
        self._remote = remote if remote.schedd else None
        environment = environment_with({**credentials, **options.environment}, ())
        super().__init__(options.programs, options.prefix, environment, options.timeout_s)

    def describe_token(self) -> str:
        """Describe our token, if one is needed; raise ``BackendUnavailable`` without one."""
        if self._tokens is None:
            return ""
        self._tokens.ensure()
        return f"{self._issuer} has given one, valid for {self._tokens.remaining_s:.0f} s"

    def run(self, program: str, arguments: Sequence[str], stdin: str = "") -> str:
        if self._tokens is not None:
            self._tokens.ensure()
        return super().run(program, [*self._target(program), *arguments], stdin)

    def _target(self, program: str) -> list[str]:
        """Return the arguments that name a schedd or collector elsewhere; none if it is local."""
        if self._remote is None:
            return []
        collector = ["-pool", self._remote.collector]
        if program == "condor_status":
            return collector
        flag = "-remote" if program == "condor_submit" else "-name"
        return [flag, self._remote.schedd, *collector]
