"""The service under a real systemd: scripts/install-submitter, then all an admin types."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nkeys
import pytest

from templates.job.status import STARTED
from tests.support.machine import SOURCE, USER, Machine
from tests.support.nats_server import NatsServer
from tests.unit.submitter.rig import POOL, Centre, eventually, job_of

pytestmark = pytest.mark.install

UNIT = "interlink-submitter"
POOL_FOLDER = "/var/lib/interlink-pool"
KEY = "/etc/interlink/nats.nkey"
DENIED = ("Permission denied", "Operation not permitted", "Read-only file system")
CHECK = "/opt/interlink/current/bin/interlink-submitter check"


def test_the_service_under_a_real_systemd(tmp_path: Path) -> None:
    """One test, because the machine is dear; its parts follow in the order in which they run."""
    if os.geteuid() != 0:
        pytest.skip("only root can boot a machine")
    with Machine(tmp_path / "machine") as machine:
        nats = machine.nats(tmp_path / "nats")
        seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
        configure(machine, nats, seed)
        is_one_of_its_own(machine)
        waits_for_nats_and_says_so(machine, nats)
        machine.run("systemctl", "enable", "--now", UNIT)
        centre = machine.centre(nats)
        for part in (
            runs_as_its_user,
            keeps_its_key_from_jobs,
            gives_jobs_control_groups,
            keeps_jobs_over_a_stop,
            keeps_jobs_over_a_restart_and_a_kill,
            is_ended_by_the_watchdog,
            is_uninstalled,
        ):
            part(machine, centre)
        centre.close()
        nats.stop()


def configure(machine: Machine, nats: NatsServer, seed: bytes) -> None:
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    centre = {"user": "centre", "password": "unused"}
    users = {"authorization": {"users": [{"nkey": public}, centre]}, "no_auth_user": "centre"}
    nats.configure(**users)
    machine.write(KEY, seed.decode())
    machine.run("chmod", "600", KEY)
    machine.run("install", "-d", "-o", USER, "-m", "700", POOL_FOLDER)
    pool = {
        "name": POOL,
        "directory": POOL_FOLDER,
        "build": {"runtime": {"name": "host"}},
        "policy": {"namespaces": ["*"]},
        "timing": {"spool_s": 1, "poll_s": 1, "heartbeat_s": 1, "resources_s": 2},
    }
    config = {"nats": {"servers": [nats.url], "nkey_file": KEY}, "pools": [pool]}
    machine.write("/etc/interlink/submitter.yaml", json.dumps(config))


def shown(machine: Machine, name: str) -> str:
    return machine.run("systemctl", "show", UNIT, "--property", name, "--value").strip()


def states(machine: Machine) -> tuple[str, str, str]:
    return (shown(machine, "ActiveState"), shown(machine, "SubState"), shown(machine, "Result"))


def main_pid(machine: Machine) -> int:
    """As it is called in the machine."""
    return int(shown(machine, "MainPID"))


def waiting_job(machine: Machine, centre: Centre, code: int) -> tuple[str, Path]:
    """A job that ends with this code once somebody makes a file, and that file."""
    path = f"{POOL_FOLDER}/go-{code}"
    job = job_of(f"while [ ! -e {path} ]; do sleep 0.1; done; exit {code}")
    centre.insist(job)
    centre.until(job.name, lambda status: status.containers[0].state.state == "running")
    return job.name, machine.at(path)


def waits_for_nats_and_says_so(machine: Machine, nats: NatsServer) -> None:
    machine.run("systemctl", "start", "--no-block", UNIT)
    words = "no connection to NATS: "
    eventually(lambda: shown(machine, "StatusText").startswith(words), 120, "the unit says so")
    eventually(lambda: "Connect call failed" in shown(machine, "StatusText"), 60, "it says why")
    assert states(machine) == ("activating", "start", "success")
    nats.start()
    eventually(lambda: states(machine) == ("active", "running", "success"), 60)
    assert shown(machine, "StatusText").startswith("connected; ")
    machine.run("systemctl", "stop", UNIT)
    assert states(machine) == ("inactive", "dead", "success")


def runs_as_its_user(machine: Machine, centre: Centre) -> None:
    assert states(machine) == ("active", "running", "success")
    assert shown(machine, "UnitFileState") == "enabled"
    assert shown(machine, "WatchdogUSec") == "2min"
    uid = machine.run("id", "-u", USER).strip()
    assert f"Uid:\t{uid}\t{uid}" in machine.run("cat", f"/proc/{main_pid(machine)}/status")
    job = job_of("id -un; exit 3")
    centre.insist(job)
    assert centre.ended(job.name).exit_code == 3
    assert centre.logs(job.name) == f"{USER}\n".encode()


def keeps_its_key_from_jobs(machine: Machine, centre: Centre) -> None:
    seed, pid = machine.at(KEY).read_text(), main_pid(machine)
    thief = f"python3 {SOURCE}/tests/data/thief.py {KEY}"
    job = job_of(f"{thief} {pid} {UNIT}.service; sleep 1; exit 9")
    centre.insist(job)
    assert centre.ended(job.name).exit_code == 9
    found = centre.logs(job.name).decode()
    assert seed not in found
    ways = dict(line.split(": ", 1) for line in found.splitlines())
    for way in (
        "key",
        "chmod",
        "rename",
        "environ",
        "mem",
        "maps",
        "fd/0",
        "fds",
        "getfd",
        "attach",
    ):
        assert ways[way] in DENIED, (way, found)
    checked = ("bash", "-c", f"cat {KEY} | runuser -u {USER} -- {CHECK}")
    assert f"ok    nats.nkey_file: {KEY}, handed over by root" in machine.try_to(*checked).stdout
    others = machine.try_to("runuser", "-u", USER, "--", *CHECK.split()).stdout
    assert (
        f"WRONG nats.nkey_file: {KEY}: Permission denied. To mend it: as root: cat {KEY}" in others
    )
    rotates_its_key(machine, centre)


def rotates_its_key(machine: Machine, centre: Centre) -> None:
    """A key that the server does not know counts from the next start on, and no sooner."""
    seed = machine.at(KEY).read_text()
    machine.at(KEY).write_text(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode())
    assert shown(machine, "StatusText").startswith("connected; ")
    machine.run("systemctl", "restart", "--no-block", UNIT)
    eventually(lambda: "uthorization" in shown(machine, "StatusText"), 60, "it is not let in")
    machine.at(KEY).write_text(seed)
    machine.run("systemctl", "restart", UNIT)


def keeps_jobs_over_a_stop(machine: Machine, centre: Centre) -> None:
    name, go = waiting_job(machine, centre, 5)
    before = centre.status(name)
    machine.run("systemctl", "stop", UNIT)
    assert states(machine) == ("inactive", "dead", "success")
    assert shown(machine, "ExecMainStatus") == "0"
    assert machine.run("pgrep", "-fc", f"job.sh {POOL_FOLDER}/jobs/{name}").strip() != "0"
    machine.run("systemctl", "start", UNIT)
    after = centre.status(name)
    assert before is not None and after is not None
    assert (after.native, after.phase) == (before.native, STARTED)
    go.touch()
    assert centre.ended(name).exit_code == 5


def keeps_jobs_over_a_restart_and_a_kill(machine: Machine, centre: Centre) -> None:
    name, go = waiting_job(machine, centre, 6)
    first = main_pid(machine)
    machine.run("systemctl", "restart", UNIT)
    second = main_pid(machine)
    assert second != first
    machine.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", UNIT)
    eventually(lambda: main_pid(machine) not in (0, second))
    eventually(lambda: states(machine) == ("active", "running", "success"))
    go.touch()
    assert centre.ended(name).exit_code == 6


def is_ended_by_the_watchdog(machine: Machine, centre: Centre) -> None:
    """When its loop turns no more."""
    override = f"/etc/systemd/system/{UNIT}.service.d/90-test.conf"
    machine.write(override, "[Service]\nWatchdogSec=3\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", UNIT)
    name, go = waiting_job(machine, centre, 7)
    frozen = main_pid(machine)
    start = int(shown(machine, "NRestarts"))
    machine.run("kill", "-STOP", str(frozen))
    eventually(lambda: int(shown(machine, "NRestarts")) > start, 60)
    eventually(lambda: states(machine) == ("active", "running", "success"), 60)
    assert "Watchdog timeout" in machine.journal()  # in systemd's own words
    assert main_pid(machine) != frozen
    go.touch()
    assert centre.ended(name).exit_code == 7
    machine.at(override).unlink()
    machine.run("systemctl", "daemon-reload")


def gives_jobs_control_groups(machine: Machine, centre: Centre) -> None:
    name, go = waiting_job(machine, centre, 8)
    status = centre.status(name)
    assert status is not None
    pid = status.native.partition(".")[0]
    group = machine.run("cat", f"/proc/{pid}/cgroup").splitlines()[-1]
    assert group == f"0::/system.slice/{UNIT}.service/interlink-{name}"
    go.touch()
    assert centre.ended(name).exit_code == 8
    place = machine.at(f"/sys/fs/cgroup/system.slice/{UNIT}.service/interlink-{name}")
    eventually(lambda: not place.exists())


def is_one_of_its_own(machine: Machine) -> None:
    """Nothing that its systemd does may be seen outside."""
    for space in ("mnt", "pid", "uts", "ipc", "net", "cgroup"):
        theirs = os.readlink(f"/proc/{machine.pid}/ns/{space}")
        assert theirs != os.readlink(f"/proc/self/ns/{space}")
    assert machine.run("hostname").strip() == "machine"
    devices = set(machine.run("ls", "/dev").split())
    assert not {name for name in devices if name.startswith(("vd", "sd", "nvme", "kmsg", "mem"))}
    assert machine.run("ls", "/sys/class/net").split() == ["lo"]
    assert not Path("/run/interlink-machine").exists()
    machine.run("touch", "/run/interlink-machine", "/etc/interlink-machine")
    assert not Path("/run/interlink-machine").exists()
    assert not Path("/etc/interlink-machine").exists()


def is_uninstalled(machine: Machine, centre: Centre) -> None:
    machine.run(f"{SOURCE}/scripts/install-submitter", "--uninstall")
    assert machine.try_to("systemctl", "is-active", UNIT).stdout.strip() == "inactive"
    assert machine.try_to("systemctl", "cat", UNIT).returncode != 0
    assert not machine.at("/opt/interlink").exists()
    assert machine.at("/etc/interlink/submitter.yaml").exists()
    assert UNIT not in machine.run("systemctl", "list-units", "--failed", "--plain")
