"""Whatever happens to a job at its site reaches the pod's status, told apart from all else.

The pods may be run again; whose job is not to be says so itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sites.slurm.site import USER, USER_ID, SlurmSite, until
from tests.sites.slurm.system import ALL_ANNOTATIONS, TIMING, SlurmSystem, system_at
from tests.support.system import job_of

WAIT = "while :; do sleep 0.2; done"
UP = f"echo up; {WAIT}"
HOG = "x=$(head -c 150000000 /dev/zero | tr '\\0' x); " + WAIT


@pytest.fixture(scope="module")
def the_system(
    the_site: SlurmSite, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SlurmSystem]:
    build = {
        "runtime": {"name": "apptainer"},
        "script": {"rerun": True},
        "rules": ALL_ANNOTATIONS,
    }
    pool = {"build": build, "timing": {**TIMING, "lost_after_s": 20}}
    with system_at(the_site, tmp_path_factory.mktemp("causes"), pool=pool) as system:
        yield system


@pytest.fixture
def system(the_system: SlurmSystem, site: SlurmSite) -> SlurmSystem:
    return the_system


def restarts(system: SlurmSystem, pod: dict[str, Any]) -> int:
    status = system.status(pod)
    return int(status["containers"][0]["restartCount"]) if status else 0


def until_up(system: SlurmSystem, pod: dict[str, Any]) -> str:
    """Wait until it has said "up": before, signals may hit Apptainer instead (docs/limits.md)."""
    number = system.until_running(pod)
    system.until(lambda: system.log(pod) == b"up\n", "its first line", 30)
    return number


# --- ends -----------------------------------------------------------------------------------------


def test_an_administrator_cancels(system: SlurmSystem) -> None:
    pod = system.run(UP)
    number = until_up(system, pod)
    system.slurm.admin("scancel", number)
    code, message = system.end(pod)
    assert code == 143
    assert "Cancelled: Slurm: CANCELLED by 0: " in message


def test_an_administrator_cancels_what_waits(system: SlurmSystem) -> None:
    pod = system.run(WAIT, says={"flags": "--hold"})
    assert system.waits(pod, "Held") == "Slurm: JobHeldUser: it is held by its user"
    system.slurm.admin("scancel", *system.numbers(pod))
    code, message = system.end(pod)
    assert code == 143
    assert "CANCELLED by 0: a user or an administrator cancelled it" in message


def test_the_time_limit(system: SlurmSystem) -> None:
    """One that ends when Slurm warns it, and one that stays until it is killed."""
    obeys = system.run(WAIT, says={"flags": "--time=10 --signal=B:TERM@50"})
    stays = system.run("trap '' TERM; " + WAIT, says={"flags": "--time=1"})
    for pod, left in ((obeys, 55), (stays, 7)):
        number = system.until_running(pod)
        system.slurm.admin("scontrol", "update", f"jobid={number}", f"EndTime=now+{left}")
    code, message = system.end(obeys)
    assert code != 0
    assert "TimeLimit: Slurm: FAILED" in message
    assert "the batch system ended the job on n" in message
    code, message = system.end(stays)
    assert code != 0
    assert "TimeLimit: " in message
    assert "Slurm: TIMEOUT: it reached its time limit" in message


def test_more_memory_than_it_has(system: SlurmSystem) -> None:
    pod = system.run(HOG, says={"flags": "--mem=60M"})
    code, message = system.end(pod)
    assert code == 137
    assert "OOMKilled: " in message
    assert message.endswith("it used more memory than it had")


def test_what_ends_by_its_own_fault_says_no_more(system: SlurmSystem) -> None:
    pod = system.run("exit 7")
    assert system.end(pod) == (7, "")


def test_preemption(system: SlurmSystem) -> None:
    """By what has more right to a node: of one that may wait again, and of one that may not."""
    again = system.run(WAIT, says={"flags": "-p yielding -w n2 --exclusive"})
    over = system.run(UP, says={"flags": "-p main -w n3 --exclusive --no-requeue"})
    system.until_running(again)
    until_up(system, over)
    first = system.slurm.submit("sleep 1000", "-p", "urgent", "-w", "n2,n3", "-N2", "--exclusive")
    code, message = system.end(over)
    assert code == 143
    assert "Preempted: " in message
    assert "Slurm: PREEMPTED: a job that comes first took its place" in message
    words = "(put back into the queue once)"
    system.until(lambda: words in str(system.state(again)), "the other one waits again", 60)
    system.slurm.admin("scancel", first)
    system.until_running(again)
    assert restarts(system, again) == 1


def test_a_node_dies(system: SlurmSystem) -> None:
    pod = system.run(WAIT, says={"flags": "-w n1 --no-requeue"})
    system.until_running(pod)
    system.slurm.kill("n1")
    code, message = system.end(pod)
    assert code != 0
    assert "NodeFail: " in message
    assert "NODE_FAIL" in message


# --- waiting --------------------------------------------------------------------------------------


def test_an_administrator_holds_and_lets_go(system: SlurmSystem) -> None:
    pod = system.run("exit 0", says={"flags": "--begin=now+1hour"})
    assert system.waits(pod, "BeginTime").startswith("Slurm: BeginTime: ")
    (number,) = system.numbers(pod)
    system.slurm.admin("scontrol", "hold", number)
    assert system.waits(pod, "Held") == "Slurm: JobHeldAdmin: it is held by an administrator"
    system.slurm.admin("scontrol", "release", number)
    system.slurm.admin("scontrol", "update", f"jobid={number}", "StartTime=now")
    assert system.end(pod)[0] == 0


def test_an_administrator_requeues(system: SlurmSystem) -> None:
    pod = system.run('echo "start $SLURM_RESTART_COUNT"; ' + WAIT)
    number = system.until_running(pod)
    system.until(lambda: system.log(pod) == b"start \n", "its first start has begun")
    system.slurm.admin("scontrol", "requeuehold", number)
    assert "held" in system.waits(pod, "Held")
    assert "(put back into the queue once)" in system.waits(pod, "Held")
    system.slurm.admin("scontrol", "release", number)
    assert system.until_running(pod) == number
    assert restarts(system, pod) == 1
    system.until(lambda: system.log(pod) == b"start 1\n", "its log is that of this start")
    assert system.log(pod, Previous=True) == b"start \n"


def test_the_containers_of_a_first_start_that_outlives_it_are_killed(system: SlurmSystem) -> None:
    """slurmd dies, its job does not; a node that Slurm takes for dead goes on with it."""
    mark = f"mark-{uuid.uuid4()}"
    pod = system.run(f"trap '' TERM; echo $SLURM_JOB_NODELIST; : {mark}; {WAIT}")
    number = system.until_running(pod)
    first = system.slurm.show(number)["NodeList"]
    system.slurm.kill(f"slurmd@{first}")
    until(lambda: system.slurm.living(first, mark), 20, f"a container on {first}")
    system.until(lambda: restarts(system, pod) == 1, "it runs again", 120)
    until(lambda: not system.slurm.living(first, mark), 20, f"no containers on {first}")
    second = system.slurm.show(number)["NodeList"]
    assert second != first
    until(lambda: system.slurm.living(second, mark), 20, f"a container on {second}")
    assert "running" in system.state(pod)
    system.until(lambda: system.log(pod) == f"{second}\n".encode(), "its log is the later one's")


def test_the_limits_of_a_qos(system: SlurmSystem) -> None:
    """Five jobs may be in the queue, and two of them run: the others wait here, and all run."""
    pods = [system.run("sleep 1", says={"flags": "--qos=small"}) for _ in range(8)]
    words = [str(system.state(pod)) for pod in pods]
    system.until(
        lambda: any("QOSMaxSubmitJobPerUserLimit" in str(system.state(pod)) for pod in pods),
        f"one waits for a place in the queue: {words}",
    )
    for pod in pods:
        assert system.end(pod) == (0, "")
        assert len(system.numbers(pod)) == 1


# --- ended by us ----------------------------------------------------------------------------------


def test_all_steps_of_a_deleted_pod_end(system: SlurmSystem) -> None:
    steps = "srun --overlap --ntasks=2 sleep 4242 & for i in 1 2 3; do sleep 0.2; done"
    pod = system.run(WAIT, says={"flags": "-N 2 -n 2 -w n1,n2", "pre-exec": steps})
    number = system.until_running(pod)

    def steps_on() -> list[str]:
        return [name for name in ("n1", "n2") if system.slurm.living(name, "sleep 4242")]

    until(lambda: len(steps_on()) == 2, 30, "a step on either node")
    system.plugin.delete(pod)
    system.until(lambda: not system.directory(pod).exists(), "its directory is gone", 60)
    until(lambda: not steps_on(), 30, "the end of the steps")
    until(lambda: system.slurm.admin("squeue", "-h", "-j", number) == "", 30, "an empty queue")


def test_a_pod_that_is_deleted_while_it_waits_leaves_no_trace(system: SlurmSystem) -> None:
    pod = system.run(WAIT, says={"flags": "--begin=now+1hour"})
    system.waits(pod, "BeginTime")
    (number,) = system.numbers(pod)
    system.plugin.delete(pod)
    system.until(lambda: not system.directory(pod).exists(), "its directory is gone", 60)
    assert system.slurm.admin("squeue", "-h", "-u", USER) == ""
    assert not list((system.site / "site-a" / "spool").glob(f"{job_of(pod)}.*"))
    told = system.slurm.admin("sacct", "-nPX", "-j", number, "-o", "state,start,nodelist")
    assert told.strip() in (f"CANCELLED by {USER_ID}|None|None assigned", "")
