"""What reaches Slurm of what pods ask for, and what Slurm offers them: flavors, flags, capacity."""

from __future__ import annotations

import re
from typing import Any

import pytest

from submitter.backends.slurm import flags
from submitter.backends.slurm.states import find_state
from submitter.common.errors import Forbidden
from tests.sites.slurm.site import USER, SlurmSite
from tests.sites.slurm.test_backend import WAIT, Bench
from tests.unit.submitter.rig import eventually

pytestmark = pytest.mark.slurm


@pytest.fixture
def bench(site: SlurmSite) -> Bench:
    return Bench(site)


# --- what this Slurm knows ------------------------------------------------------------------------

HELP = re.compile(r"^ {1,6}(?:-([A-Za-z]), )?--([a-z-]+)(\[?=)?", re.MULTILINE)


def test_every_flag_that_sbatch_has_is_known(site: SlurmSite) -> None:
    found = HELP.findall(site.login("sbatch", "--help"))
    assert len(found) > 70
    for short, name, equals in found:
        value = f"={'1' if name != 'time' else '10'}" if equals else ""
        for word in [f"--{name}{value}", *([f"-{short}{value[1:]}"] if short else [])]:
            try:
                options = flags.parse([word], "flags")
            except Forbidden as error:
                assert name in flags.NEVER, error
                continue
            assert set(options) <= {name}
            assert name in flags.KNOWN


def test_every_state_that_squeue_has_is_known(site: SlurmSite) -> None:
    states = site.login("squeue", "--helpstate").upper().split()
    assert len(states) > 20
    assert [name for name in states if find_state(name) is None] == []


# --- flavors --------------------------------------------------------------------------------------


def test_flavors(bench: Bench) -> None:
    """Each of them says something else, and Slurm hears all of it."""
    site = bench.site
    site.admin(
        *("scontrol", "create", "reservation", "reservationname=ours", f"users={USER}"),
        *("starttime=now", "duration=60", "nodes=n2", "flags=ignore_jobs"),
    )
    flavors: list[dict[str, Any]] = [
        {"name": "gpu", "constraint": "gpu", "min_gpus": 1, "max_gpus": 2},
        {"name": "quick", "partition": "short", "qos": "large", "max_wall_time_s": 300},
        {"name": "ours", "reservation": "ours", "account": "lab", "flags": ["--nice=7"]},
    ]
    with_flavors = Bench(site, flavors=flavors)
    try:
        gpus = {"limits": {"nvidia.com/gpu": "1"}}
        wanted: list[tuple[dict[str, Any], tuple[str, ...]]] = [
            ({"resources": gpus}, ("Features=gpu", "TresPerNode=gres/gpu:1", "NodeList=n3")),
            ({}, ("Partition=short", "QOS=large", "TimeLimit=00:05:00")),
            ({"flags": "-t 10"}, ("Reservation=ours", "Account=lab", "NodeList=n2", "Nice=7")),
        ]
        for spec, words in wanted:
            ref = with_flavors.submit(WAIT, **spec)
            with_flavors.until_it_runs(ref)
            told = site.admin("scontrol", "show", "job", ref.native)
            assert [word for word in words if word not in told] == []
            with_flavors.slurm.cancel([ref], kill=True)
        with pytest.raises(Forbidden, match="gpu gives at most 2 GPUs; quick gives at most 300 s"):
            job = with_flavors.journaled("true", "-t 10 --gres=gpu:3 --account=other")
            with_flavors.slurm.check(job)
    finally:
        site.admin("bash", "-c", f"scancel -u {USER}; true")
        deleted = ["scontrol", "delete", "reservationname=ours"]
        eventually(lambda: site.run("ctl", deleted).returncode == 0)


def test_gpus_in_all(bench: Bench) -> None:
    in_all = Bench(bench.site, gpu_flag="gpus", gres={"nvidia.com/gpu": "gpu:a100"})
    ref = in_all.submit(WAIT, resources={"limits": {"nvidia.com/gpu": "2"}})
    in_all.until_it_runs(ref)
    told = bench.site.admin("scontrol", "show", "job", ref.native)
    assert "TresPerJob=gres/gpu:a100:2" in told


def test_a_slice_of_a_gpu_that_has_no_name_here(bench: Bench) -> None:
    job = bench.journaled("true", resources={"limits": {"nvidia.com/mig-1g.5gb": "1"}})
    with pytest.raises(Forbidden, match=r"asks for nvidia\.com/mig-1g\.5gb, and options\.gres"):
        bench.slurm.check(job)


# --- capacity -------------------------------------------------------------------------------------


def test_capacity(bench: Bench) -> None:
    every = Bench(bench.site, partitions=["main", "short"]).slurm.capacity()
    assert (every["cpu"], every["nvidia.com/gpu"], every["pods"]) == ("24", "2", "20000")
    bench.site.admin("scontrol", "update", "nodename=n3", "state=drain", "reason=test")
    rest = Bench(bench.site, partitions=["main", "short"]).slurm.capacity()
    assert (rest["cpu"], rest["nvidia.com/gpu"]) == ("16", "0")


def test_what_is_free_counts_our_own_jobs(bench: Bench) -> None:
    def offer() -> dict[str, str]:
        return Bench(bench.site, capacity="free").slurm.capacity()

    eventually(lambda: offer()["cpu"] == "24")  # a node that was drained has to answer first
    before = offer()
    ref = bench.submit(WAIT, resources={"requests": {"cpu": "3", "memory": "1Gi"}})
    bench.until_it_runs(ref)
    assert offer() == before


def test_jobs_are_limited_by_the_qos(bench: Bench) -> None:
    flavors = [{"name": "only", "qos": "small"}]
    assert Bench(bench.site, flavors=flavors).slurm.capacity()["pods"] == "2"


def test_nodes_that_are_down_are_not_offered(bench: Bench) -> None:
    bench.site.kill("slurmd@n2")  # which would have it back at once

    def offer() -> str:
        # What slurmd said last may still be on its way, and would have the node back as well.
        bench.site.admin("scontrol", "update", "nodename=n2", "state=down", "reason=test")
        return Bench(bench.site).slurm.capacity()["cpu"]

    eventually(lambda: offer() == "16")


def test_jobs_are_limited_by_the_association(bench: Bench) -> None:
    def limit(number: int) -> None:
        change = f"sacctmgr --immediate modify user {USER} set MaxSubmitJobs={number}"
        bench.site.admin(*change.split())

    limit(7)
    try:
        assert bench.slurm.capacity()["pods"] == "7"
        assert Bench(bench.site, pods=3).slurm.capacity()["pods"] == "3"
    finally:
        limit(-1)
