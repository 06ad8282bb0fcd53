"""The site itself: that it is what tests of the submitter take it for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import certificates
from scripts.lib.slurm.machines import Trouble, all_processes
from tests.sites.slurm.site import CENTRE, CENTRE_PORT, SCRIPT, SlurmSite, running, until
from tests.support.nats_server import NatsServer
from tests.unit.submitter.rig import POOL, Centre

IMAGE = "/srv/images/busybox_1.36.sif"
KINDS = ("mnt", "net", "pid", "uts")
KNOCK = """
import socket, sys
try:
    end = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
    end.sendall(b"hello\\n\\n")
    sys.stdout.write(end.recv(100).decode() or "nothing")
except OSError as error:
    sys.stdout.write(type(error).__name__ + " " + str(error))
"""


@pytest.fixture
def echo() -> Iterator[int]:
    """A port of this machine that gives back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"you said " + connection.recv(100).strip())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


# --- jobs -----------------------------------------------------------------------------------------


def test_a_job_of_the_users(site: SlurmSite) -> None:
    job = site.submit("echo $HOSTNAME $USER $(id -un); sleep 1; exit 3")
    assert job in site.login("squeue", "--noheader", "--format=%i").split()
    site.until(job, "FAILED")
    assert site.output(job).split() in [[node, "alice", "alice"] for node in site.nodes]
    told = ["sacct", "-nPX", "-j", job, "--format=user,account,qos,state,exitcode"]
    until(lambda: "FAILED" in site.login(*told), 10, "the job's end in the accounts")
    assert site.login(*told).split() == ["alice|lab|normal|FAILED|3:0"]


def test_home_is_the_same_path_here_and_there(site: SlurmSite) -> None:
    job = site.submit(f"echo from the node >{site.home}/note")
    site.until(job, "COMPLETED")
    assert (site.home / "note").read_text() == "from the node\n"
    (site.home / "answer").write_text("from here")
    assert site.login("cat", "answer") == "from here"


def test_two_nodes(site: SlurmSite) -> None:
    job = site.submit("srun hostname", "--nodes=2")
    site.until(job, "COMPLETED")
    found = site.output(job).split()
    assert len(set(found)) == 2 and set(found) <= set(site.nodes)


@pytest.mark.parametrize("nodes", [1, 2])
def test_mpi(site: SlurmSite, nodes: int) -> None:
    job = site.submit("mpiexec -np 2 mpi-hello", "--ntasks=2", f"--nodes={nodes}")
    site.until(job, "COMPLETED")
    lines = sorted(site.output(job).splitlines())
    assert [line.split(" on ")[0] for line in lines] == ["rank 0 of 2", "rank 1 of 2"]
    assert all(line.endswith("sum 1") for line in lines)
    assert len({line.split()[5] for line in lines}) == nodes


def test_a_container(site: SlurmSite) -> None:
    command = f"apptainer --quiet exec {IMAGE} sh -c 'busybox | head -n 1; id -u'"
    job = site.submit(command)
    site.until(job, "COMPLETED")
    words = site.output(job).split()
    assert words[0] == "BusyBox" and words[-1] == "1000"


def test_gpus_are_counted(site: SlurmSite) -> None:
    jobs = [site.submit("echo $CUDA_VISIBLE_DEVICES; sleep 60", "--gpus=1") for _ in range(3)]
    for job in jobs[:2]:
        site.until(job, "RUNNING")
    assert site.show(jobs[2])["JobState"] == "PENDING"
    assert {site.show(job)["NodeList"] for job in jobs[:2]} == {site.nodes[-1]}


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--partition=none"], "Invalid partition name specified"),
        (["--partition=staff"], "User's group not permitted to use this partition"),
        (["--partition=short", "--time=60"], "Requested time limit is invalid"),
        (["--partition=limited", "--nodes=2"], "Node count specification invalid"),
        (["--account=other"], "Invalid account or account/partition combination specified"),
        (["--qos=narrow"], "Invalid qos specification"),
        (["--mem=1T"], "Memory specification can not be satisfied"),
    ],
)
def test_what_the_site_refuses(site: SlurmSite, flags: list[str], words: str) -> None:
    code, told = site.attempt("sbatch", *flags, "--wrap", "true")
    assert code == 1
    assert words in told


def test_a_limit_on_submitted_jobs(site: SlurmSite) -> None:
    jobs = [site.submit("sleep 60", "--qos=small") for _ in range(5)]
    code, told = site.attempt("sbatch", "--qos=small", "--wrap", "true")
    assert code == 1
    assert "QOSMaxSubmitJobPerUserLimit" in told
    assert "Job violates accounting/QOS policy" in told
    until(
        lambda: [site.show(job)["Reason"] for job in jobs].count("QOSMaxJobsPerUserLimit") == 3,
        20,
        "two of five jobs to run",
    )


# --- nodes ----------------------------------------------------------------------------------------


def test_drain(site: SlurmSite) -> None:
    running_job = site.submit("sleep 60", "--nodelist=n1")
    site.until(running_job, "RUNNING")
    site.admin("scontrol", "update", "nodename=n1", "state=drain", "reason=repair")
    waiting = site.submit("true", "--nodelist=n1")
    until(lambda: "ReqNodeNotAvail" in site.show(waiting)["Reason"], 20, "a reason")
    assert site.show(running_job)["JobState"] == "RUNNING"
    assert site.node_states()["n1"] == "drng"
    site.admin("scontrol", "update", "nodename=n1", "state=resume")
    site.until(waiting, "COMPLETED")


def test_a_node_dies_under_a_job_that_may_run_again(site: SlurmSite) -> None:
    again = site.submit("echo run $SLURM_RESTART_COUNT on $HOSTNAME; sleep 2", "--requeue")
    site.until(again, "RUNNING")
    first = site.show(again)["NodeList"]
    site.kill(first)
    site.until(again, "COMPLETED")
    assert site.show(again)["Restarts"] == "1"
    assert site.output(again).split()[:2] == ["run", "1"]
    assert site.node_states()[first] == "down"
    rows = site.login("sacct", "-nPXD", "-j", again, "--format=state").split()
    # The accounting may keep a row of the time before the first start, too.
    assert [row for row in rows if row != "PENDING"] == ["NODE_FAIL", "COMPLETED"]
    site.start(first)
    until(lambda: site.node_states()[first] == "idle", 30, f"{first} to be back")


def test_a_node_dies_under_a_job_that_may_not(site: SlurmSite) -> None:
    job = site.submit("sleep 60", "--no-requeue")
    node = site.until(job, "RUNNING")["NodeList"]
    site.kill(node)
    assert site.until(job, "NODE_FAIL")["Reason"] == "NodeDown"


def test_slurmd_dies_and_its_jobs_live_on(site: SlurmSite) -> None:
    job = site.submit("trap '' TERM; while :; do date +%s%N >beat; sleep 0.1; done", "--no-requeue")
    node = site.until(job, "RUNNING")["NodeList"]
    beat = site.home / "beat"
    until(beat.exists, 10, "the job's first beat")
    site.kill(f"slurmd@{node}")
    before = beat.read_text()
    until(lambda: beat.read_text() not in ("", before), 10, "another beat")
    site.start(f"slurmd@{node}")
    assert site.show(job)["JobState"] == "RUNNING"


def test_a_cable_is_pulled(site: SlurmSite) -> None:
    site.unplug("n2")
    until(lambda: site.node_states()["n2"] == "down", 60, "n2 to be missed")
    site.plug("n2")
    until(lambda: site.node_states()["n2"] == "idle", 60, "n2 to be back")


# --- programs -------------------------------------------------------------------------------------


def test_the_controller_dies_and_comes_back(site: SlurmSite) -> None:
    job = site.submit("sleep 12; echo done", "--no-requeue")
    site.until(job, "RUNNING")
    site.until_saved()
    site.kill("slurmctld")
    code, told = site.attempt("sbatch", "--wrap", "true")
    assert code == 1
    assert "Unable to contact slurm controller" in told
    site.start("slurmctld")
    site.until(job, "COMPLETED")


def test_a_frozen_controller_accepts_what_it_seems_not_to(site: SlurmSite) -> None:
    site.freeze("slurmctld")
    code, told = site.attempt("sbatch", "--job-name=frozen", "--wrap", "true")
    assert code == 1
    assert "Socket timed out" in told
    site.thaw("slurmctld")
    told_by = ["sacct", "-nPX", "--name=frozen", "--format=state"]
    until(lambda: "COMPLETED" in site.login(*told_by), 30, "the job that was accepted")


def test_without_the_accounts(site: SlurmSite) -> None:
    site.kill("slurmdbd")
    job = site.submit("true")
    code, told = site.attempt("sacct", "-j", job)
    assert code == 1
    assert "Connection refused" in told
    site.start("slurmdbd")
    until(lambda: job in site.login("sacct", "-nPX", "-j", job), 30, "the job in the accounts")


def test_without_munge(site: SlurmSite) -> None:
    site.stop("munged@login")
    code, told = site.attempt("sbatch", "--wrap", "true")
    assert code == 1
    assert "Protocol authentication error" in told
    site.start("munged@login")
    site.until(site.submit("true"), "COMPLETED")


def test_what_is_no_part_of_a_site(site: SlurmSite) -> None:
    for part in ("n9", "slurmd@n9", "slurmd", "outside", "bash@n1"):
        with pytest.raises(Trouble, match="neither a machine"):
            site.kill(part)
    with pytest.raises(Trouble, match="runs already"):
        site.start("n1")
    with pytest.raises(Trouble, match="is a machine"):
        site.freeze("n1")


# --- the way out ----------------------------------------------------------------------------------


def knock(site: SlurmSite, machine: str, host: str, port: int) -> str:
    return site.do(machine, "python3", "-c", KNOCK, host, str(port), user="alice")


@contextlib.contextmanager
def web_server(site: SlurmSite, machine: str) -> Iterator[None]:
    """Somebody who answers on port 8080 of a machine."""
    command = site.command(machine, ["python3", "-m", "http.server", "8080"])
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    try:
        until(lambda: site.machine(machine).listens(8080), 20, f"a server on {machine}")
        yield
    finally:
        process.kill()
        process.wait()


def test_the_login_node_reaches_one_port_outside(site: SlurmSite, echo: int) -> None:
    site.lead_to(echo)
    assert knock(site, "login", CENTRE, CENTRE_PORT) == "you said hello"
    # There is somebody behind the border who would answer at another port.
    with web_server(site, "outside"):
        assert "refused" in knock(site, "login", CENTRE, 8080)
        assert "HTTP" in knock(site, "outside", CENTRE, 8080)
    for address in ("198.51.100.1", "127.0.0.1"):
        assert "Error" in knock(site, "login", address, echo)


def test_the_others_reach_nothing_outside(site: SlurmSite, echo: int) -> None:
    site.lead_to(echo)
    for machine in ("ctl", *site.nodes):
        assert "unreachable" in knock(site, machine, CENTRE, CENTRE_PORT)


def test_nobody_comes_in(site: SlurmSite) -> None:
    with web_server(site, "login"):
        assert "HTTP" in knock(site, "n1", "login", 8080)
        assert "refused" in knock(site, "outside", "192.0.2.2", 8080)


def test_the_way_out_leads_nowhere_or_is_cut(site: SlurmSite, echo: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    site.lead_to(port)
    assert "Reset" in knock(site, "login", CENTRE, CENTRE_PORT)
    site.lead_to(echo)
    site.unplug("outside")
    assert "Error" in knock(site, "login", CENTRE, CENTRE_PORT)
    site.plug("outside")
    until(lambda: "you said" in knock(site, "login", CENTRE, CENTRE_PORT), 10, "the way out")


# --- our programs, and the end --------------------------------------------------------------------


def test_python_with_our_packages(site: SlurmSite) -> None:
    command = site.python(["-m", "submitter", "--version"])
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "interlink" in done.stdout
    code, _ = site.attempt("touch", "/interlink-nats/README.md")
    assert code != 0


def test_our_submitter_reaches_a_real_nats_server(site: SlurmSite, tmp_path: Path) -> None:
    nats = NatsServer(tmp_path / "nats")
    certificates.make(nats.folder, ("localhost", CENTRE))
    nats.start()
    site.lead_to(nats.websocket_port)
    shutil.copy(nats.ca_file, site.home / "ca.pem")
    pool = {"name": POOL, "directory": f"{site.home}/pool", "backend": "host"}
    pool["policy"] = {"namespaces": ["*"]}
    link = {"servers": [f"wss://{CENTRE}:{CENTRE_PORT}"], "ca_file": f"{site.home}/ca.pem"}
    config = site.home / "submitter.yaml"
    config.write_text(json.dumps({"nats": link, "pools": [pool]}))
    log = tmp_path / "submitter.log"
    centre = Centre(nats)
    submitter = site.program(["-m", "submitter", "--config", str(config)], log)
    try:
        until(lambda: centre.publications, 60, f"word from the site: {log}")
        assert submitter.poll() is None
    finally:
        submitter.terminate()
        centre.close()
        nats.stop()
    assert submitter.wait(20) == 0, log.read_text()


def test_a_program_gets_our_signals_and_dies_with_us(site: SlurmSite, tmp_path: Path) -> None:
    script = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); time.sleep(99)"
    login = site.machine("login")
    for number, code in ((signal.SIGTERM, 7), (signal.SIGKILL, -9)):
        process = site.program(["-c", f"open('{site.home}/here', 'w'); {script}"], tmp_path / "log")
        until((site.home / "here").exists, 10, "the program")
        until(lambda: login.processes("python"), 10, "the program")
        process.send_signal(number)
        assert process.wait(10) == code
        until(lambda: not login.processes("python"), 10, "its end")
        (site.home / "here").unlink()


def spaces() -> dict[str, int]:
    """The name spaces in use on this machine, each with one process in it."""
    found = {}
    for pid in all_processes():
        for kind in KINDS:
            try:
                found[os.readlink(f"/proc/{pid}/ns/{kind}")] = pid
            except OSError:
                break
    return found


@pytest.fixture
def kept() -> Iterator[contextlib.ExitStack]:
    """What is closed when a test is over."""
    with contextlib.ExitStack() as stack:
        yield stack


def interfaces() -> set[str]:
    return set(os.listdir("/sys/class/net"))


def test_nothing_is_left(tmp_path: Path, kept: contextlib.ExitStack) -> None:
    """A site beside the others, without accounting, and all that goes when it does."""
    before, names = spaces(), {"site", "lan", "outside", "login", "ctl", "n1"}
    with running(tmp_path, nodes=1, accounting=False, settings={"MinJobAge": "2"}) as site:
        job = site.submit("sleep 100")
        site.until(job, "RUNNING")
        assert "MinJobAge=2\n" in site.login("cat", "/etc/slurm/slurm.conf")
        assert site.attempt("sacct")[0] != 0
        building = site.building.pid
        machines = [site.machine(name).pid for name in site.facts["machines"]]
        ways = [f"/proc/{pid}/ns/{kind}" for pid in (building, *machines) for kind in KINDS]
        inside = {os.readlink(way) for way in ways}
        for way in ways:  # who keeps one open keeps its number from being given to another one
            kept.callback(os.close, os.open(way, os.O_RDONLY))
        # Whoever stops what a machine was started with, its end is the end all the same.
        starter = Path(f"/proc/{site.machine('n1').pid}/stat")
        for _ in range(2):
            parent = int(starter.read_text().rpartition(")")[2].split()[1])
            starter = Path(f"/proc/{parent}/stat")
        assert "nsenter" in starter.read_text()
        os.kill(parent, signal.SIGSTOP)
        assert not inside & before.keys()
        assert inside <= spaces().keys()
    until(lambda: not inside & spaces().keys(), 30, "the end of the last process")
    assert not interfaces() & names
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert not site.file.exists()
    assert not (tmp_path / "root").exists()


def test_an_up_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen([SCRIPT, "up", tmp_path], stderr=subprocess.DEVNULL)
    site = SlurmSite(tmp_path)
    until(lambda: site.file.exists() and "ctl" in site.facts.get("machines", {}), 30, "a machine")
    building, controller = site.building, site.machine("ctl")
    process.kill()
    process.wait()
    until(lambda: not building.is_alive and not controller.is_alive, 20, "the end of all of it")
    # The folder can be used again.
    with running(tmp_path, nodes=1, accounting=False) as again:
        again.until(again.submit("true"), "COMPLETED")


def test_one_folder_has_one_site(tmp_path: Path) -> None:
    def refuse(words: str) -> None:
        with pytest.raises(AssertionError, match=words), running(tmp_path):
            raise RuntimeError("a site came up")

    (tmp_path / "something").touch()
    refuse("neither empty nor a site's folder")
    (tmp_path / "something").unlink()
    with running(tmp_path, nodes=1, accounting=False) as site:
        refuse("its site is up already")
        assert site.building.is_alive
