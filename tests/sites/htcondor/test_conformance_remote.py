"""The same as in ``test_conformance.py`` with a computing element elsewhere, known by tokens.

The submitter's machine has nothing of HTCondor's but its programs, who is to be believed, and the
secret of a client; each of its tokens is valid for some seconds.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.sites.htcondor import test_conformance_apart as apart
from tests.sites.htcondor.at_an_element import *  # noqa: F403 - its fixtures are used here
from tests.sites.htcondor.element import LIFETIME_S, Element
from tests.sites.htcondor.site import RunningSite
from tests.unit.submitter.conformance import Conformance
from tests.unit.submitter.conftest import Start
from tests.unit.submitter.rig import Centre, Submitter, eventually

# Whoever of us and HTCondor is quicker.
NEVER_WHOLE = re.compile("not all of its files have arrived|Staging of job files failed")
BREAKS_ONCE = """\
#!/bin/bash
[ ! -e {home}/broken ] || exec condor_submit "$@"
touch {home}/broken
truncate -s 3G {home}/large
sed 's#^transfer_input_files = .*#&, {home}/large#' >{home}/description
condor_submit "${{@:1:$#-1}}" {home}/description &
until [ "$(condor_q -name "${{@:2:3}}" -af HoldReasonCode)" = 16 ]; do sleep 0.1; done
number=$(condor_q -name "${{@:2:3}}" -af ClusterId)
kill -KILL $!
wait $!
{last_word}
"""


@pytest.fixture(params=["false", 'echo "$number.0 - $number.0"'])
def breaks_once(home: Path, request: pytest.FixtureRequest) -> Path:
    """A condor_submit that dies while the first job's files are on their way, and its last word."""
    program = home / "condor_submit"
    program.write_text(BREAKS_ONCE.format(home=home, last_word=request.param))
    program.chmod(0o755)
    return program


class TestRemote(Conformance):
    pool = {"backend": "htcondor"}
    one_at_a_time = {"options": {"commands": {"concurrency_limits": "one"}}}

    test_a_killed_job_ends_with_words = apart.TestApart.test_a_killed_job_ends_with_words

    def test_a_job_that_ends_while_nobody_looks(
        self, start: Start, centre: Centre, tmp_path: Path, site: RunningSite
    ) -> None:
        submitter: Submitter = start(**self.settings())
        job = self.job_of(f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 6")
        centre.create(job)
        centre.until(job.name, lambda s: s.containers[0].state.state == "running")
        submitter.stop(signal.SIGKILL)
        (tmp_path / "go").touch()
        ended = ["condor_q", "-constraint", f'InterlinkJob == "{job.name}"', "-af", "JobStatus"]
        eventually(lambda: site.admin(*ended).strip() == "4")
        submitter.until_ready(centre)
        assert centre.ended(job.name).exit_code == 6

    # --- what only such an element can do ---------------------------------------------------------

    def test_nothing_of_a_job_stays_there(
        self, start: Start, centre: Centre, the_element: Element
    ) -> None:
        start(**self.settings())
        jobs = [self.job_of("exit 3"), self.job_of("sleep 1000")]
        for job in jobs:
            centre.create(job)
        assert centre.ended(jobs[0].name).exit_code == 3
        centre.until(jobs[1].name, lambda s: s.containers[0].state.state == "running")
        for job in jobs:
            centre.delete(job.name)
            centre.until_gone(job.name)
        assert the_element.admin("condor_q", "-allusers", "-af", "ClusterId") == ""
        spool = the_element.directory / "state" / "login" / "spool"
        eventually(lambda: not list(spool.glob("*/*/cluster*")))

    def test_a_job_of_which_not_all_files_arrive(
        self,
        start: Start,
        centre: Centre,
        tmp_path: Path,
        breaks_once: Path,
        the_element: Element,
    ) -> None:
        """Its submission is repeated, whatever had been said."""
        options = {"programs": {"condor_submit": str(breaks_once)}}
        start(**self.settings(options=options))
        job = self.job_of(f"echo ran >>{tmp_path}/ran; exit 4")
        centre.create(job)
        assert centre.ended(job.name).exit_code == 4
        assert (tmp_path / "ran").read_text() == "ran\n"
        assert (breaks_once.parent / "broken").exists()
        ours = f'InterlinkJob == "{job.name}"'
        why = the_element.admin("condor_history", "-constraint", ours, "-af", "RemoveReason")
        assert NEVER_WHOLE.search(why)

    def test_a_job_whose_schedd_dies_when_it_ends(
        self, start: Start, centre: Centre, tmp_path: Path, the_element: Element
    ) -> None:
        """It has left its last words, and nobody who knew that it has ended."""
        start(**self.settings(options={"stream": False}))
        job = self.job_of(
            f"touch {tmp_path}/runs; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 5"
        )
        centre.create(job)
        eventually((tmp_path / "runs").exists)
        machines = [the_element.machine(name) for name in the_element.nodes]
        with the_element.without_schedd():
            (tmp_path / "go").touch()
            eventually(lambda: not any(machine.processes("condor_starter") for machine in machines))
            the_element.end_at_login("condor_shadow")
        assert centre.ended(job.name).exit_code == 5

    def test_without_tokens_nothing_is_lost(
        self, start: Start, centre: Centre, tmp_path: Path, the_element: Element
    ) -> None:
        submitter = start(**self.settings())
        waiting = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
        jobs = [self.job_of(f"echo {n} >>{tmp_path}/ran; {waiting}; exit {n}") for n in (1, 2)]
        centre.create(jobs[0])
        centre.until(jobs[0].name, lambda s: s.containers[0].state.state == "running")
        the_element.issuer.send_signal(signal.SIGSTOP)
        try:
            eventually(lambda: "no valid token" in submitter.words(), 20 * LIFETIME_S)
            (tmp_path / "go").touch()
            assert centre.create(jobs[1])["state"] == "journaled"
            said = centre.until(
                jobs[1].name, lambda s: "no valid token" in s.containers[0].state.message
            )
            assert "the issuer" in said.containers[0].state.message
        finally:
            the_element.issuer.send_signal(signal.SIGCONT)
        for n, job in enumerate(jobs, 1):
            assert centre.ended(job.name).exit_code == n
        assert sorted((tmp_path / "ran").read_text().split()) == ["1", "2"]
