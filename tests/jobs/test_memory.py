"""Memory limits: kept by a cgroup where there can be one, else by a watcher; told as OOMKilled."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from templates.site.build_config import BuildConfig
from tests.support.processes import assert_none_left, control_groups, marked
from tests.support.script_runner import Finished, Site, pod, sh, with_script

MIB = 1024 * 1024
# Grows to $1 MiB (a shell variable of that size), says so, and stays for $2 seconds.
GROW = """x=$(head -c 1048576 /dev/zero | tr '\\0' x); n=1
while [ $n -lt $1 ]; do x=$x$x; n=$((2 * n)); done
echo grown; sleep $2; echo end"""


def limited(limit: str, mib: int, seconds: int = 3) -> dict[str, Any]:
    return sh(GROW, str(mib), str(seconds), resources={"limits": {"memory": limit}})


def watched(site: Site) -> BuildConfig:
    return with_script(site.config, cgroups="off")


def can_make_memory_cgroups() -> bool:
    """Whether this very process may make a cgroup with a memory limit beside its own."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            base, limit = Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"
        elif not controllers:
            base, limit = Path(f"/sys/fs/cgroup{path}"), "memory.max"
        else:
            continue
        folder = base / f"interlink-test-{secrets.token_hex(4)}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(64 * MIB))
        except OSError:
            continue
        else:
            return True
        finally:
            folder.rmdir()
    return False


def assert_killed(done: Finished, container: str = "c0") -> None:
    end = done.state.containers[container].end
    assert end is not None
    assert (end.exit_code, end.signal, end.reason) == (137, 9, "OOMKilled"), done
    assert "end" not in done.log(container)


def test_the_watcher_kills_a_container_that_exceeds_its_limit(every_site: Site) -> None:
    done = every_site.run(
        pod(marked(every_site.folder, limited("32Mi", 128, 60)), sh("sleep 3; echo fine; exit 0")),
        watched(every_site),
    )
    assert_killed(done)
    assert done.ends()["c1"] == 0
    assert done.log("c1") == "fine\n"
    assert done.code == 137
    assert_none_left(every_site.folder)


def test_the_watcher_leaves_a_container_below_its_limit_alone(every_site: Site) -> None:
    # The shell of the container itself, and none of what the runtime needs beside it.
    done = every_site.run(pod(limited("100Mi", 32)), watched(every_site))
    assert (done.code, done.log("c0")) == (0, "grown\nend\n")


def test_what_a_runtime_needs_for_itself_does_not_count(container_site: Site) -> None:
    # Far less than an Apptainer starter, a conmon or a FUSE helper takes.
    done = container_site.run(
        pod(sh("sleep 3", resources={"limits": {"memory": "4Mi"}})), watched(container_site)
    )
    assert done.ends() == {"c0": 0}, done


def test_the_watcher_counts_all_processes_of_a_container(site: Site) -> None:
    # Each of the three is below the limit, all of them are not.
    grow = GROW.replace("$1", "32").replace("$2", "60")
    done = site.run(
        pod(
            sh(
                f"grow() {{ {grow}; }}; grow & grow & (setsid sh -c 'sleep 1' &) ; grow",
                resources={"limits": {"memory": "80Mi"}},
            )
        ),
        watched(site),
    )
    assert_killed(done)


def test_a_container_killed_for_its_memory_starts_again_as_the_policy_says(site: Site) -> None:
    work = {"name": "work", "mountPath": "/work"}
    script = "[ ! -e /work/x ] || exit 0; touch /work/x; " + GROW
    done = site.run(
        pod(
            sh(script, "128", "60", resources={"limits": {"memory": "32Mi"}}, volumeMounts=[work]),
            volumes=[{"name": "work", "emptyDir": {}}],
            restartPolicy="OnFailure",
        ),
        watched(site),
    )
    main = done.state.containers["c0"]
    assert (done.code, main.restarts) == (0, 1)
    assert main.end is not None
    assert main.last_end is not None
    assert (main.end.reason, main.last_end.reason) == ("Completed", "OOMKilled")


def test_a_cgroup_keeps_a_container_within_its_limit(folder: Path) -> None:
    if not can_make_memory_cgroups():
        pytest.skip("this machine lets us make no cgroup with a memory limit")
    done = Site("host", folder).run(pod(limited("32Mi", 128, 60), sh("sleep 1; echo fine")))
    assert_killed(done)
    assert "grown" not in done.log("c0"), "the kernel would not have let it grow so far"
    assert done.log("c1") == "fine\n"
    assert no_cgroup_left(done)


def test_a_cgroup_leaves_a_container_below_its_limit_alone(folder: Path) -> None:
    if not can_make_memory_cgroups():
        pytest.skip("this machine lets us make no cgroup with a memory limit")
    done = Site("host", folder).run(pod(limited("128Mi", 32)))
    assert (done.code, done.log("c0")) == (0, "grown\nend\n")
    assert no_cgroup_left(done)


def no_cgroup_left(done: Finished) -> bool:
    job = done.records[0].job
    return not control_groups(f"{job}-*")


@pytest.mark.podman
def test_podman_keeps_the_limit_whoever_enforces_it(folder: Path) -> None:
    site = Site("podman", folder)
    done = site.run(pod(limited("32Mi", 128, 60)))
    assert_killed(done)


def test_without_a_limit_nothing_is_killed(site: Site) -> None:
    done = site.run(pod(sh(GROW, "64", "3")), watched(site))
    assert (done.code, done.log("c0")) == (0, "grown\nend\n")
