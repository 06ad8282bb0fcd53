"""The host backend by itself: starting exactly once, room, and what belongs to a job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

from submitter.backends import registry
from submitter.backends.base import Backend, JobRef
from submitter.backends.host import options as host_options
from submitter.backends.host.backend import HostBackend
from submitter.backends.host.processes import (
    ProcessIdentity,
    parse_identity,
    read_boot_id,
    read_stat,
)
from submitter.common.errors import Forbidden, NoRoom, SubmitUnclear
from submitter.config.settings import Pool
from submitter.store.journal import Journal
from templates.common.errors import ConfigError
from templates.job.model import Job
from templates.job.status import ENDED, STARTED
from templates.settings.reference import keys
from tests.house.test_docs import default_of
from tests.support.processes import kill_left
from tests.unit.submitter.rig import REPO, eventually, job_of, placed


class Machine:
    """A pool of this machine, without NATS."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.pool = Pool(name="site", directory=str(folder), options=options)
        self.journal = Journal(str(folder))
        self.journal.prepare()
        self.host = HostBackend(self.pool)

    def journaled(self, script: str = "exit 0", **more: object) -> Job:
        job = job_of(script, **more)  # type: ignore[arg-type]
        placed(self.journal, job)
        return job

    def start(self, job: Job) -> JobRef:
        directory = self.journal.of(job.name)
        return JobRef(job.name, self.host.submit(job, directory), directory)

    def ends(self, ref: JobRef) -> bool:
        return self.host.poll([ref])[ref.name].phase == ENDED


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """Makes machines that share a pool; at the end, nothing runs and nobody is left unasked."""
    made: list[Machine] = []

    def make(**options: object) -> Machine:
        made.append(Machine(tmp_path / "pool", **options))
        return made[-1]

    yield make
    kill_left(tmp_path, whole_path=True)
    for one in made:
        eventually(lambda host=one.host: host.poll([]) == {} and not host._children)


@pytest.fixture
def machine(machines: Callable[..., Machine]) -> Machine:
    return machines(pods="2", cpu="2", memory="4Gi")


def test_a_job_is_started_detached_and_seen(machine: Machine, tmp_path: Path) -> None:
    ref = machine.start(machine.journaled("sleep 1000"))
    process = parse_identity(ref.native)
    assert process is not None
    assert os.getsid(process.pid) == process.pid
    assert machine.host.poll([ref])[ref.name].phase == STARTED
    assert machine.host.find([ref.name, "other"]) == {ref.name: ref.native}
    machine.host.cancel([ref], kill=True)
    eventually(lambda: machine.ends(ref))
    eventually(lambda: machine.host.clean([ref]) == {ref.name})
    assert os.listdir(tmp_path / "pool/running") == []
    assert machine.host.find([ref.name]) == {ref.name: ref.native}  # it was started once


def test_a_second_start_is_impossible(machine: Machine, tmp_path: Path) -> None:
    job = machine.journaled(f"echo ran >>{tmp_path}/ran")
    ref = machine.start(job)
    with pytest.raises(SubmitUnclear):
        machine.start(job)
    eventually(lambda: machine.ends(ref))
    eventually(lambda: machine.host.clean([ref]))
    again = machine.start(job)  # as if everything but the directory were forgotten
    eventually(lambda: machine.ends(again))
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert machine.host.find([job.name]) == {job.name: ref.native}


def test_room_is_shared_and_comes_back(machine: Machine, machines: Callable[..., Machine]) -> None:
    other = machines(**machine.pool.options).host
    first = machine.start(machine.journaled("sleep 1000", resources={"requests": {"cpu": "1500m"}}))
    small = machine.journaled("sleep 1000", resources={"requests": {"cpu": "500m"}})
    large = machine.journaled("sleep 1000", resources={"requests": {"cpu": "1"}})
    with pytest.raises(NoRoom, match=r"waits for 1 cpus: 0\.5 cpus are free now"):
        other.submit(large, machine.journal.of(large.name))
    second = machine.start(small)
    third = machine.journaled()
    with pytest.raises(NoRoom, match=r"waits for 1 .*: 0 .* are free now"):
        other.submit(third, machine.journal.of(third.name))
    other.cancel([first, second], kill=True)
    eventually(lambda: other.clean([first, second]) == {first.name, second.name})
    other.submit(large, machine.journal.of(large.name))


def test_what_was_removed_while_nobody_looked_takes_no_room(
    machine: Machine, machines: Callable[..., Machine], tmp_path: Path
) -> None:
    lost = [machine.start(machine.journaled("echo up; sleep 1000")) for _ in range(2)]
    for ref in lost:
        log = Path(ref.directory) / "logs" / "main.0.log"
        # Before its command runs, the script still makes directories of its own there.
        eventually(lambda log=log: log.exists() and log.read_text() == "up\n")
        os.rename(ref.directory, tmp_path / ref.name)
    fresh = machines(**machine.pool.options)
    ref = fresh.start(fresh.journaled("sleep 1000"))
    # What was ended takes room until the kernel has let go of it.
    eventually(lambda: fresh.host._running_jobs() == {ref.name})
    assert os.listdir(tmp_path / "pool/running") == [ref.name]
    assert all(machine.ends(one) for one in lost)


def test_memory_and_gpus_count_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "pool", memory="1Gi")
    with pytest.raises(Forbidden, match="asks for 2 GiB of memory"):
        machine.host.check(job_of(resources={"limits": {"memory": "2Gi"}}))
    with pytest.raises(Forbidden, match="gpu"):
        machine.host.check(job_of(resources={"limits": {"nvidia.com/gpu": "1"}}))
    machine.host.check(job_of(resources={"limits": {"memory": "1Gi"}}))


def gpus_of(ref: JobRef) -> dict[str, str]:
    """What a job has heard of its GPUs."""
    log = Path(ref.directory) / "logs" / "main.0.log"
    eventually(lambda: log.exists() and "over" in log.read_text())
    lines = [line for line in log.read_text().splitlines() if "=" in line]
    return dict(line.split("=", 1) for line in sorted(lines))


def asking_for(number: int, then: str = "sleep 1000", **more: str) -> dict[str, object]:
    script = f"env | grep -E 'VISIBLE|ZE_AFF'; echo over; {then}"
    limits = {"nvidia.com/gpu": str(number), **more} if number else more
    return {"script": script, "resources": {"limits": limits}}


def test_gpus_are_assigned_and_no_two_jobs_have_the_same(machines: Callable[..., Machine]) -> None:
    options = {"gpus": [0, "GPU-1", 2], "cpu": "9", "pods": "9"}
    one, other = machines(**options), machines(**options)  # two submitters of one pool
    assert one.host.capacity()["nvidia.com/gpu"] == "3"
    first = one.start(one.journaled(**asking_for(1)))
    second = other.start(other.journaled(**asking_for(2)))
    third = one.journaled(**asking_for(1))
    with pytest.raises(
        NoRoom, match=r"waits for 1 nvidia\.com/gpu: 0 nvidia\.com/gpu are free now"
    ):
        one.start(third)
    without = one.start(one.journaled(**asking_for(0)))
    found = [gpus_of(ref) for ref in (first, second, without)]
    assert found == [
        {"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "GPU-1,2", "NVIDIA_VISIBLE_DEVICES": "GPU-1,2"},
        {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"},
    ]
    one.host.cancel([second], kill=True)
    eventually(lambda: one.host.clean([second]) == {second.name})
    assert gpus_of(other.start(third))["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_a_gpu_that_a_job_has_stays_its_own_when_the_options_change(
    machines: Callable[..., Machine],
) -> None:
    before, after = machines(gpus=["a", "b"]), machines(gpus=["b", "c"])
    holder = before.start(before.journaled(**asking_for(2)))
    assert gpus_of(holder)["CUDA_VISIBLE_DEVICES"] == "a,b"
    with pytest.raises(NoRoom):
        after.start(after.journaled(**asking_for(1)))
    changed = machines(gpus=["b", "c", "d"])
    with pytest.raises(NoRoom, match=r"waits for 2 nvidia\.com/gpu: 1 "):
        changed.start(changed.journaled(**asking_for(2)))
    assert gpus_of(changed.start(changed.journaled(**asking_for(1))))["CUDA_VISIBLE_DEVICES"] == "c"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cpus": 1}, "cpus: unknown key (did you mean cpu?)"),
        ({"cpu": "many"}, "cpu: not a quantity"),
        ({"pods": []}, "pods: "),
        ({"gpus": -1}, "gpus: must not be negative"),
        ({"gpus": "all"}, "gpus: must be a list, not text"),
        ({"gpus": ["0,1"]}, "gpus: 0,1: must be one GPU"),
        ({"gpus": [0, "0"]}, "gpus: names one of them twice"),
        ({"gpus": 1}, "gpus: are 1, and resources offer 2"),
        ({"gpu_resource": "gpu"}, "gpu_resource: must be one of nvidia.com/gpu"),
    ],
)
def test_a_wrong_option_is_one_line(options: dict[str, object], words: str) -> None:
    pool = Pool(name="a", directory="/a", options=options, resources={"nvidia.com/gpu": "2"})
    with pytest.raises(ConfigError) as caught:
        HostBackend(pool)
    assert str(caught.value).startswith(f"pool a: options: {words}")


@pytest.mark.parametrize(
    ("resource", "variables"),
    [
        ("amd.com/gpu", ["ROCR_VISIBLE_DEVICES=0"]),
        ("intel.com/gpu", ["ZE_AFFINITY_MASK=0"]),
        ("gpu.intel.com/i915", ["ZE_AFFINITY_MASK=0"]),
    ],
)
def test_each_make_has_its_variables(resource: str, variables: list[str]) -> None:
    pool = Pool(name="a", directory="/a", options={"gpus": 1, "gpu_resource": resource})
    options = host_options.load(pool)
    assert host_options.read_offer(options, {})[resource] == "1"
    assert host_options.gpu_environment(options, ["0"]) == variables
    none = host_options.load(Pool(name="a", directory="/a"))
    assert host_options.gpu_environment(none, []) == []


def test_the_options_are_those_of_the_documentation() -> None:
    text = (REPO / "docs" / "backends.md").read_text(encoding="utf-8")
    table = text.split("### Options of host\n\n")[1].split("\n\n")[0]
    found = [line.strip("|").split(" | ") for line in table.splitlines()[2:]]
    assert [[cell.strip() for cell in row] for row in found] == [
        [f"`{key.name}`", key.type, default_of(key), key.doc]
        for key in keys(host_options.Options())
    ]


START = """
import sys
from submitter.backends.host.backend import Host
from submitter.store.journal import Journal
from submitter.config.settings import Pool
from submitter.jobs.scanner import load
directory, name = sys.argv[1:]
job = load(Journal(directory), name).job
Host(Pool(name="site", directory=directory, options={"pods": "99", "cpu": "99"})).submit(
    job, f"{directory}/jobs/{name}"
)
"""


def test_killed_while_it_starts_jobs_a_start_is_told_for_certain(
    machines: Callable[..., Machine], tmp_path: Path
) -> None:
    """Whenever the kill comes: what is found has run once, what is not found can be started."""
    folders, machine = [], machines(pods="99", cpu="99")
    for step in range(12):
        folder = tmp_path / f"out-{step}"
        folder.mkdir()
        job = machine.journaled(f"echo ran >>{folder}/ran")
        folders.append(folder)
        command = [sys.executable, "-c", START, machine.pool.directory, job.name]
        environment = {**os.environ, "PYTHONPATH": str(REPO)}
        child = subprocess.Popen(command, env=environment)
        entry = tmp_path / "pool/running" / job.name
        if step % 4:
            eventually(lambda: entry.exists() or child.poll() is not None)  # noqa: B023
            time.sleep(0.004 * (step % 4 - 1))
        child.send_signal(signal.SIGKILL)
        child.wait()
        found = machine.host.find([job.name])
        if not found:
            assert not entry.exists()
            machine.start(job)
    for folder in folders:
        eventually((folder / "ran").exists)
    for folder in folders:
        assert (folder / "ran").read_text() == "ran\n"


def test_a_job_that_could_not_write_down_its_start(machine: Machine, tmp_path: Path) -> None:
    job = machine.journaled()
    (tmp_path / "pool/jobs" / job.name / "begun").touch()  # killed between two steps
    found = machine.host.find([job.name])
    ref = JobRef(job.name, found[job.name], machine.journal.of(job.name))
    observation = machine.host.poll([ref])[job.name]
    assert (observation.phase, observation.message) == (ENDED, "it was killed while it began")
    assert machine.host.clean([ref]) == {job.name}


def test_what_another_machine_has_started_is_left_to_it(machine: Machine, tmp_path: Path) -> None:
    own = machine.start(machine.journaled("sleep 1000"))
    entry = tmp_path / "pool/running" / own.name
    other = own._replace(native=own.native.replace(os.uname().nodename, "node2.example.org"))
    machine.host.cancel([other], kill=True)
    assert machine.host.clean([other]) == set()
    assert machine.host.poll([other])[own.name].phase == STARTED
    Path(own.directory, "final").touch()
    assert machine.host.poll([other])[own.name].phase == ENDED
    assert machine.host.poll([own])[own.name].phase == STARTED
    removed = other._replace(directory=f"{tmp_path}/removed by hand")
    assert machine.host.clean([removed]) == {own.name}
    entry.unlink()  # which is the last that machine does with it
    assert machine.host.clean([other]) == {own.name}
    assert not machine.ends(own)


def test_what_others_run_takes_no_room_here(
    machine: Machine, machines: Callable[..., Machine], tmp_path: Path
) -> None:
    refs = [machine.start(machine.journaled("sleep 1000")) for _ in range(2)]
    third = machine.journaled("sleep 1000")
    with pytest.raises(NoRoom):
        machine.start(third)
    entry = tmp_path / "pool/running" / refs[0].name
    taken = json.loads(entry.read_text())
    assert taken["machine"] == os.uname().nodename
    entry.write_text(json.dumps({**taken, "machine": "node2.example.org"}))
    fresh = machines(**machine.pool.options)
    fresh.start(third)
    assert fresh.host._running_jobs() == {refs[1].name, third.name}


def test_a_restarted_machine_ends_its_jobs(machine: Machine) -> None:
    ref = JobRef("job", f"{os.getpid()}.1.another-boot", "/nowhere")
    assert machine.host.poll([ref])["job"].message == "the machine was restarted"
    machine.host.cancel([ref], kill=False)
    machine.host.cancel([ref], kill=True)  # and we are still here


def test_a_number_that_has_a_new_owner_is_left_alone(machine: Machine) -> None:
    stat = read_stat(os.getpid())
    assert stat is not None
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    other = ProcessIdentity(stranger.pid, stat.start, read_boot_id())
    ref = JobRef("job", str(other), "/nowhere")
    machine.host.cancel([ref], kill=False)
    machine.host.cancel([ref], kill=True)
    assert machine.ends(ref)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_what_a_pool_offers(tmp_path: Path) -> None:
    pool = Pool(
        name="site",
        directory=str(tmp_path),
        options={"cpu": 3, "pods": "7"},
        resources={"memory": "2Gi", "nvidia.com/gpu": "1"},
    )
    offer = HostBackend(pool).capacity()
    assert offer == {"cpu": "3", "memory": "2Gi", "pods": "7", "nvidia.com/gpu": "1"}
    own = HostBackend(Pool(name="site", directory=str(tmp_path))).capacity()
    assert int(own["cpu"]) == len(os.sched_getaffinity(0))


def test_backends_by_name(tmp_path: Path) -> None:
    made = registry.make_backend(Pool(name="site", directory=str(tmp_path)))
    assert isinstance(made, HostBackend)
    assert isinstance(made, Backend)
    with pytest.raises(ConfigError, match="host"):
        registry.make_backend(Pool(name="site", directory=str(tmp_path), backend="pbs"))


@pytest.mark.parametrize("text", ["1.2.boot", "1.2.boot.node1", "1.2.boot.node1.example.org"])
def test_identities(text: str) -> None:
    found = parse_identity(text)
    assert str(found) == text
    assert parse_identity(text.replace(".", " ", 3)) == found


@pytest.mark.parametrize("text", ["", "1", "1.2", "a.b.c", "1 x boot"])
def test_identities_of_others(text: str) -> None:
    assert parse_identity(text) is None
