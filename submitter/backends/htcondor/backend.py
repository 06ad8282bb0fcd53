"""The HTCondor backend: condor_submit, condor_q, condor_rm at an access point on this machine.

One condor_q shows all jobs of the pool, the ended ones included: they stay in the queue until they
are removed from it here. Those that have left it, because somebody has removed them, are looked up
by one condor_history.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from submitter.backends.base import Finding, JobRef, Observation
from submitter.backends.command_backend import HISTORY_S, CommandBackend
from submitter.backends.commands import CommandRunner, chunks
from submitter.backends.htcondor import parsing, submit_file
from submitter.backends.htcondor.capacity import attribute_name, read_capacity
from submitter.backends.htcondor.commands import HTCondorCommands
from submitter.backends.htcondor.errors import classify_submit_failure
from submitter.backends.htcondor.observations import PoolRules, observe, observe_ended
from submitter.backends.htcondor.options import load
from submitter.backends.htcondor.parsing import Ad
from submitter.backends.htcondor.request import (
    JOB_ATTRIBUTE,
    POOL_ATTRIBUTE,
    build_commands,
    build_description,
)
from submitter.backends.htcondor.spooling import (
    INCOMPLETE,
    IS_SPOOLING,
    NEVER_COMPLETE,
    REASON_PREFIX,
    OutputFetcher,
    is_incomplete,
)
from submitter.backends.htcondor.states import IDLE, REMOVED, RUNNING
from submitter.backends.htcondor.transfer import StreamUnpacker, remove_input, write_input
from submitter.common.errors import (
    BackendUnavailable,
    CommandFailed,
    Forbidden,
    SubmitRefused,
    SubmitUnclear,
)
from submitter.common.nats_request import AskNats, not_connected
from submitter.config.settings import Pool
from submitter.store.journal import Journal
from templates.common.errors import ConfigError
from templates.job.model import Job
from templates.job.status import ENDED, QUEUED

ANALYSIS_S = 60.0  # between two analyses of why a job finds no machine
CLEANED = f"{REASON_PREFIX}the pod's job is over"
DELETED = "the pod was deleted"
_NO_SUCH_JOB = "Couldn't find/"


class HTCondorBackend(CommandBackend):
    """One access point of an HTCondor pool, as the user that the submitter runs as."""

    title = "HTCondor"

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        super().__init__(pool, ask)
        self._options = load(pool.options, pool.name)
        self._commands = HTCondorCommands(self._options, pool.directory, ask)
        rerun, shared = pool.build.script.rerun, self._options.shared
        if rerun and not shared:
            error = "must be false where options.shared is: two starts have no directory to meet in"
            raise ConfigError(f"pool {pool.name}: build.script.rerun", error)
        self._remote = bool(self._options.remote.schedd)
        self._rules = PoolRules(rerun, self._options.releases, shared, self._remote)
        self._unpacker = StreamUnpacker(Journal(pool.directory))
        # The last analysis: a job that finds no machine, the reason, and the time of the query.
        self._analyzed = ("", "", float("-inf"))
        further = [f"Request{attribute_name(name)}" for name in self._options.resources.values()]
        self._attributes = ",".join((*parsing.ATTRIBUTES, *further))
        self._own_jobs = f"{POOL_ATTRIBUTE} == {submit_file.quote_string(pool.name)}"
        self._fetcher = OutputFetcher(self._commands, self._own_jobs, self._options.stream)

    @classmethod
    def needs_shared_directory(cls, pool: Pool) -> bool:
        """Return False where HTCondor transfers the files of each job."""
        return pool.options.get("shared") is not False

    @property
    def _runner(self) -> CommandRunner:
        return self._commands

    def check(self, job: Job) -> None:
        submit_file.format_commands(build_commands(job, self.pool, self._options))

    # --- submitting ---------------------------------------------------------------------------

    def submit(self, job: Job, directory: str) -> str:
        try:
            written = build_description(job, directory, self.pool, self._options)
            if not self._options.shared:
                write_input(job.name, directory, self.pool.build.script.bash)
            output = self._commands.run("condor_submit", ["-terse", "-"], written)
        except Forbidden as error:
            raise SubmitRefused(str(error)) from None
        except CommandFailed as error:
            native = parsing.parse_native(error.output)
            # It reports an error, and has accepted the job all the same; a remote schedd may not
            # have its files.
            if native is not None and not self._remote:
                return native
            raise classify_submit_failure(error) from None
        native = parsing.parse_native(output)
        if native is None:
            shown = output[:200].strip() or "it says nothing"
            raise SubmitUnclear(f"condor_submit names no job: {shown}")
        return native

    def _find_submitted(self, names: Sequence[str]) -> dict[str, str]:
        listed = ", ".join(map(submit_file.quote_string, names))
        constraint = f"{self._own_jobs} && member({JOB_ATTRIBUTE}, {{{listed}}})"
        rows = self._query_complete(constraint)
        if len({ad.name for ad in rows}) < len(names):
            past = f"{constraint} && !{NEVER_COMPLETE}"
            rows += self._query_history(past, len(names), int(time.time()) - HISTORY_S)
        # Of several jobs of one name, the first.
        return {ad.name: ad.native for ad in sorted(rows, key=_sort_key, reverse=True)}

    def _is_native(self, text: str) -> bool:
        return parsing.is_native(text)

    def _query_complete(self, constraint: str) -> list[Ad]:
        """Return the jobs in the queue whose files have arrived; remove the others from it."""
        rows = self._query_queue(constraint)
        if self._remote and any(map(is_incomplete, rows)):
            self._act("condor_rm", f"{constraint} && {IS_SPOOLING}", "-reason", INCOMPLETE)
            rows = [ad for ad in self._query_queue(constraint) if not is_incomplete(ad)]
        return rows

    def _query_queue(self, constraint: str) -> list[Ad]:
        output = self._commands.query(
            "condor_q", "-json", "-attributes", self._attributes, "-constraint", constraint
        )
        return parsing.parse_ads(output)

    def _query_history(self, constraint: str, most: int, since_s: int) -> list[Ad]:
        output = self._commands.query(
            *("condor_history", "-json", "-attributes", self._attributes),
            *("-constraint", constraint, "-limit", str(most)),
            *("-since", f"EnteredCurrentStatus < {since_s}"),
        )
        return parsing.parse_ads(output)

    # --- polling ------------------------------------------------------------------------------

    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        rows = {ad.native: ad for ad in self._query_queue(self._own_jobs)}
        observations: dict[str, Observation] = {}
        missing: list[JobRef] = []
        ours = [(rows[ref.native], ref.directory) for ref in refs if ref.native in rows]
        by_native = {ad.native: observe(ad, self._rules) for ad, _ in ours}
        pending = set()
        if self._remote:
            over = {native for native, seen in by_native.items() if seen and seen.phase == ENDED}
            pending = self._fetcher.fetch(ours, over)
            self._fetcher.remove_stuck(ad for ad, _ in ours)
        for ref in refs:
            ad = rows.get(ref.native)
            if ad is None or ad.name != ref.name:
                missing.append(ref)
                continue
            observation = by_native[ref.native]
            # An unknown state, or an end whose output is not fetched yet: nothing changes.
            if observation is None or ref.native in pending:
                observation = self._last_observation(ref.name)
            observations[ref.name] = observation
        if missing:
            self._look_up(missing, observations)
        self._explain([ad for ad, _ in ours], observations)
        if not self._options.shared:  # what has arrived before the query is read with its result
            for ref in refs:
                self._unpacker.unpack(ref.name)
        self._last_observations = dict(observations)
        return observations

    def _look_up(self, missing: Sequence[JobRef], observations: dict[str, Observation]) -> None:
        """Observe jobs that are not in the queue any more."""
        names = {ref.native: ref.name for ref in missing}
        since_s = int(time.time()) - HISTORY_S
        try:
            constraint = f"{self._own_jobs} && {parsing.match_clusters(names)}"
            rows = self._query_history(constraint, len(names), since_s)
        except BackendUnavailable:  # no history: their states do not change
            for name in names.values():
                observations[name] = self._last_observation(name)
            return
        for ad in rows:
            if names.get(ad.native) == ad.name:
                observations[ad.name] = observe_ended(ad)

    def _explain(self, rows: Sequence[Ad], observations: dict[str, Observation]) -> None:
        """Add to one of the jobs that find no machine the requirements that none fulfils."""
        unmatched = [
            ad
            for ad in rows
            if ad.status == IDLE and ad.text("LastRejMatchReason") and _is_queued(observations, ad)
        ]
        if not unmatched:
            return
        native, reason, since = self._analyzed
        if time.monotonic() - since > ANALYSIS_S:
            native = unmatched[0].native
            reason = self._analyze(native)
            self._analyzed = native, reason, time.monotonic()
        for ad in unmatched:
            if reason and ad.native == native:
                seen = observations[ad.name]
                observations[ad.name] = seen._replace(message=f"{seen.message}: {reason}")

    def _analyze(self, native: str) -> str:
        try:
            unmet = parsing.parse_unmet(self._commands.query("condor_q", "-better-analyze", native))
        except BackendUnavailable:
            return ""
        return f"no machine has {', '.join(unmet[:3])}" if unmet else ""

    # --- ending -------------------------------------------------------------------------------

    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        # HTCondor itself kills running jobs when their grace period is over; after the TERM nothing
        # ends them earlier. One that has not got the TERM yet is killed at once.
        for natives in chunks(ref.native for ref in refs):
            own = f"{self._own_jobs} && {parsing.match_clusters(natives)}"
            if kill:
                self._act("condor_vacate_job", f"{own} && JobStatus == {RUNNING}", "-fast")
            self._act("condor_rm", f"{own} && JobStatus isnt 3", "-reason", DELETED)

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        """Remove the jobs from the queue, and their transferred files."""
        for natives in chunks(ref.native for ref in refs):
            own = f"{self._own_jobs} && {parsing.match_clusters(natives)}"
            self._act("condor_rm", f"{own} && JobStatus isnt 3", "-reason", CLEANED)
            if self._remote:  # removed jobs have stayed until their output was fetched
                gone = f"{own} && JobStatus == {REMOVED} && RemoteHost is undefined"
                self._act("condor_rm", gone, "-forcex")
        for ref in refs:
            self._last_observations.pop(ref.name, None)
            if not self._options.shared:
                self._unpacker.forget(ref.name)
                remove_input(ref.directory)
        return {ref.name for ref in refs}

    def _act(self, program: str, constraint: str, *arguments: str) -> None:
        try:
            self._commands.run(program, [*arguments, "-constraint", constraint])
        except CommandFailed as error:
            if _NO_SUCH_JOB not in str(error) + error.output:
                raise BackendUnavailable(str(error)) from None

    # --- capacity -----------------------------------------------------------------------------

    def examine(self) -> Iterator[Finding]:
        try:
            message = self._commands.describe_token()
        except BackendUnavailable as error:
            yield Finding("token", str(error), hint="see tokens in docs/htcondor.md")
        else:
            if message:
                yield Finding("token", message)

    def capacity(self) -> dict[str, str]:
        self._commands.describe_token()  # a cached capacity is of no use without a token
        return super().capacity()

    def _measure_capacity(self) -> dict[str, str]:
        ours = self._query_queue(self._own_jobs) if self._options.capacity == "free" else []
        return read_capacity(self._commands, self._options, ours)


def _is_queued(observations: Mapping[str, Observation], ad: Ad) -> bool:
    return ad.name in observations and observations[ad.name].phase == QUEUED


def _sort_key(ad: Ad) -> tuple[int, ...]:
    return tuple(int(part) for part in ad.native.split("."))
