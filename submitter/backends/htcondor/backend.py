"""Runs jobs under HTCondor: condor_submit, condor_q, condor_rm at an access point on this machine.

One condor_q answers for all jobs of the pool, the ended ones included: they stay in the queue
until they are taken out of it here. Those that have left it, because somebody has removed them, are
looked up by one condor_history.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from submitter.backends.base import Finding, JobRef, Observation
from submitter.backends.command_backend import HISTORY_S, CommandBackend
from submitter.backends.commands import CommandRunner, chunks
from submitter.backends.htcondor import parsing
from submitter.backends.htcondor import submit_file as description
from submitter.backends.htcondor.capacity import attribute_of, capacity
from submitter.backends.htcondor.commands import HTCondorCommands
from submitter.backends.htcondor.errors import submit_error
from submitter.backends.htcondor.observations import Terms, ended, observe
from submitter.backends.htcondor.options import load
from submitter.backends.htcondor.parsing import Ad
from submitter.backends.htcondor.request import JOB, POOL, commands, text
from submitter.backends.htcondor.spooling import (
    HALF,
    NEVER_WHOLE,
    OURS,
    SPOOLS,
    OutputFetcher,
    is_half,
)
from submitter.backends.htcondor.states import IDLE, REMOVED, RUNNING
from submitter.backends.htcondor.transfer import Arrivals, forget, prepare
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

ANALYSED_S = 60.0  # between two analyses of why a job finds no machine
WHY = f"{OURS}the pod's job is over"
DELETED = "the pod was deleted"
_NONE_FOUND = "Couldn't find/"  # how a program says that there is no such job


class HTCondorBackend(CommandBackend):
    """One access point of an HTCondor pool, as the user that the submitter runs as."""

    title = "HTCondor"

    def __init__(self, pool: Pool, ask: AskNats = not_connected) -> None:
        super().__init__(pool, ask)
        self._options = load(pool.options, pool.name)
        self._commands = HTCondorCommands(self._options, pool.directory, ask)
        rerun, shared = pool.build.script.rerun, self._options.shared
        if rerun and not shared:
            what = "must be false where options.shared is: two starts have no directory to meet in"
            raise ConfigError(f"pool {pool.name}: build.script.rerun", what)
        self._remote = bool(self._options.remote.schedd)
        self._terms = Terms(rerun, self._options.releases, shared, self._remote)
        self._arrivals = Arrivals(Journal(pool.directory))
        # A job that finds no machine, what keeps it from that, and when that was asked.
        self._why = ("", "", float("-inf"))
        further = [f"Request{attribute_of(name)}" for name in self._options.resources.values()]
        self._wanted = ",".join((*parsing.ATTRIBUTES, *further))
        self._mine = f"{POOL} == {description.string(pool.name)}"
        self._spool = OutputFetcher(self._commands, self._mine, self._options.stream)

    @classmethod
    def needs_shared_directory(cls, pool: Pool) -> bool:
        """HTCondor can send what is in it."""
        return pool.options.get("shared") is not False

    @property
    def _runner(self) -> CommandRunner:
        return self._commands

    def check(self, job: Job) -> None:
        description.lines(commands(job, self.pool, self._options))

    # --- submitting ---------------------------------------------------------------------------

    def submit(self, job: Job, directory: str) -> str:
        try:
            written = text(job, directory, self.pool, self._options)
            if not self._options.shared:
                prepare(job.name, directory, self.pool.build.script.bash)
            output = self._commands.run("condor_submit", ["-terse", "-"], written)
        except Forbidden as error:
            raise SubmitRefused(str(error)) from None
        except CommandFailed as error:
            native = parsing.native_of(error.output)
            # It complains, and has taken the job all the same; elsewhere perhaps not its files.
            if native is not None and not self._remote:
                return native
            raise submit_error(error) from None
        native = parsing.native_of(output)
        if native is None:
            said = output[:200].strip() or "it says nothing"
            raise SubmitUnclear(f"condor_submit names no job: {said}")
        return native

    def _find_submitted(self, names: Sequence[str]) -> dict[str, str]:
        listed = ", ".join(map(description.string, names))
        constraint = f"{self._mine} && member({JOB}, {{{listed}}})"
        rows = self._whole(constraint)
        if len({ad.name for ad in rows}) < len(names):
            past = f"{constraint} && !{NEVER_WHOLE}"
            rows += self._history(past, len(names), int(time.time()) - HISTORY_S)
        # Of several of one name, the first.
        return {ad.name: ad.native for ad in sorted(rows, key=_age, reverse=True)}

    def _is_native(self, text: str) -> bool:
        return parsing.is_native(text)

    def _whole(self, constraint: str) -> list[Ad]:
        """Of the jobs in the queue those whose files have arrived; others are taken out of it."""
        rows = self._queue(constraint)
        if self._remote and any(map(is_half, rows)):
            self._act("condor_rm", f"{constraint} && {SPOOLS}", "-reason", HALF)
            rows = [ad for ad in self._queue(constraint) if not is_half(ad)]
        return rows

    def _queue(self, constraint: str) -> list[Ad]:
        answer = self._commands.query(
            "condor_q", "-json", "-attributes", self._wanted, "-constraint", constraint
        )
        return parsing.ads(answer)

    def _history(self, constraint: str, most: int, since_s: int) -> list[Ad]:
        answer = self._commands.query(
            *("condor_history", "-json", "-attributes", self._wanted, "-constraint", constraint),
            *("-limit", str(most), "-since", f"EnteredCurrentStatus < {since_s}"),
        )
        return parsing.ads(answer)

    # --- looking ------------------------------------------------------------------------------

    def poll(self, refs: Sequence[JobRef]) -> Mapping[str, Observation]:
        rows = {ad.native: ad for ad in self._queue(self._mine)}
        observations: dict[str, Observation] = {}
        left: list[JobRef] = []
        ours = [(rows[t.native], t.directory) for t in refs if t.native in rows]
        said = {ad.native: observe(ad, self._terms) for ad, _ in ours}
        coming = set()
        if self._remote:
            over = {native for native, seen in said.items() if seen and seen.phase == ENDED}
            coming = self._spool.fetch(ours, over)
            self._spool.give_up(ad for ad, _ in ours)
        for ref in refs:
            ad = rows.get(ref.native)
            if ad is None or ad.name != ref.name:
                left.append(ref)
                continue
            observation = said[ref.native]
            # A state that is new, or an end whose last words are on their way: nothing changes.
            if observation is None or ref.native in coming:
                observation = self._last_observation(ref.name)
            observations[ref.name] = observation
        if left:
            self._look_up(left, observations)
        self._explain([ad for ad, _ in ours], observations)
        if not self._options.shared:  # what has come until HTCondor said this is seen with it
            for ref in refs:
                self._arrivals.unpack(ref.name)
        self._last_observations = dict(observations)
        return observations

    def _look_up(self, left: Sequence[JobRef], observations: dict[str, Observation]) -> None:
        """Jobs that are not in the queue any more."""
        known = {ref.native: ref.name for ref in left}
        since_s = int(time.time()) - HISTORY_S
        try:
            constraint = f"{self._mine} && {parsing.among(known)}"
            rows = self._history(constraint, len(known), since_s)
        except BackendUnavailable:  # nobody could be asked: they stay what they were
            for name in known.values():
                observations[name] = self._last_observation(name)
            return
        for ad in rows:
            if known.get(ad.native) == ad.name:
                observations[ad.name] = ended(ad)

    def _explain(self, rows: Sequence[Ad], observations: dict[str, Observation]) -> None:
        """Of one of the jobs that find no machine: which of its wishes none fulfils."""
        unmatched = [
            ad
            for ad in rows
            if ad.status == IDLE and ad.text("LastRejMatchReason") and _waits(observations, ad)
        ]
        if not unmatched:
            return
        native, words, since = self._why
        if time.monotonic() - since > ANALYSED_S:
            native = unmatched[0].native
            self._why = native, (words := self._analysis(native)), time.monotonic()
        for ad in unmatched:
            if words and ad.native == native:
                seen = observations[ad.name]
                observations[ad.name] = seen._replace(message=f"{seen.message}: {words}")

    def _analysis(self, native: str) -> str:
        try:
            unmet = parsing.unmet(self._commands.query("condor_q", "-better-analyze", native))
        except BackendUnavailable:
            return ""
        return f"no machine has {', '.join(unmet[:3])}" if unmet else ""

    # --- ending -------------------------------------------------------------------------------

    def cancel(self, refs: Sequence[JobRef], kill: bool) -> None:
        # HTCondor itself ends those that run when their grace period is over; once they have been
        # told, nothing ends them before that. One that has not been told is killed at once.
        for natives in chunks(ref.native for ref in refs):
            own = f"{self._mine} && {parsing.among(natives)}"
            if kill:
                self._act("condor_vacate_job", f"{own} && JobStatus == {RUNNING}", "-fast")
            self._act("condor_rm", f"{own} && JobStatus isnt 3", "-reason", DELETED)

    def clean(self, refs: Sequence[JobRef]) -> set[str]:
        """Nothing of ours stays in the queue."""
        for natives in chunks(ref.native for ref in refs):
            own = f"{self._mine} && {parsing.among(natives)}"
            self._act("condor_rm", f"{own} && JobStatus isnt 3", "-reason", WHY)
            if self._remote:  # those that were removed have stayed, to be fetched
                gone = f"{own} && JobStatus == {REMOVED} && RemoteHost is undefined"
                self._act("condor_rm", gone, "-forcex")
        for ref in refs:
            self._last_observations.pop(ref.name, None)
            if not self._options.shared:
                self._arrivals.forget(ref.name)
                forget(ref.directory)
        return {ref.name for ref in refs}

    def _act(self, program: str, constraint: str, *arguments: str) -> None:
        try:
            self._commands.run(program, [*arguments, "-constraint", constraint])
        except CommandFailed as error:
            if _NONE_FOUND not in str(error) + error.output:
                raise BackendUnavailable(str(error)) from None

    # --- room ---------------------------------------------------------------------------------

    def examine(self) -> Iterator[Finding]:
        try:
            words = self._commands.known_by()
        except BackendUnavailable as error:
            yield Finding("token", str(error), hint="see tokens in docs/htcondor.md")
        else:
            if words:
                yield Finding("token", words)

    def capacity(self) -> dict[str, str]:
        self._commands.known_by()  # what was offered lately is of no use to who cannot ask for it
        return super().capacity()

    def _measure_capacity(self) -> dict[str, str]:
        ours = self._queue(self._mine) if self._options.capacity == "free" else []
        return capacity(self._commands, self._options, ours)


def _waits(observations: Mapping[str, Observation], ad: Ad) -> bool:
    return ad.name in observations and observations[ad.name].phase == QUEUED


def _age(ad: Ad) -> tuple[int, ...]:
    return tuple(int(part) for part in ad.native.split("."))
