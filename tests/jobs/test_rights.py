"""Security contexts, GPUs and names of other hosts: what of them a container really has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from templates.common.errors import PodRejected
from templates.site.build_config import BuildConfig, Rules
from tests.support.script_runner import ALICE, Site, config_map, pod, secret, sh, with_script

ALL_CAPABILITIES = "grep CapEff /proc/self/status"
SYS_ADMIN = 1 << 21
NET_RAW = 1 << 13
CHOWN = 1 << 0
WORK = {"name": "work", "mountPath": "/work"}
VOLUMES = [{"name": "work", "emptyDir": {}}]


def allowing(site: Site) -> BuildConfig:
    """A site that grants what pods ask for."""
    return replace(site.config, rules=Rules(privileged=True))


def capabilities(site: Site, **security: Any) -> int:
    """Those that a container with this securityContext has in effect."""
    done = site.run(pod(sh(ALL_CAPABILITIES, securityContext=security)), allowing(site))
    return int(done.log("c0").split()[1], 16)


# --- the root file system ------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
def test_a_root_file_system_can_be_written_to_unless_the_pod_forbids_it(
    container_site: Site, read_only: bool
) -> None:
    script = "touch /etc/new && echo root; touch /work/new && echo volume"
    context = {"readOnlyRootFilesystem": read_only}
    container = sh(script, securityContext=context, volumeMounts=[WORK])
    said = container_site.run(pod(container, volumes=VOLUMES)).log("c0").splitlines()
    assert ("root" in said, "volume" in said) == (not read_only, True)


# --- users and groups ----------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["pod", "container"])
@pytest.mark.podman
def test_under_podman_a_container_runs_as_the_user_and_group_that_the_pod_says(
    folder: Path, level: str
) -> None:
    context = {"runAsUser": 1234, "runAsGroup": 5678}
    script = (
        "id -u; id -g; cat /secret/key; echo x >/work/x; cat /work/x; echo last words >&2;"
        " echo said >/dev/termination-log; exit 3"
    )
    mounts = [WORK, {"name": "sec", "mountPath": "/secret"}]
    own = {"securityContext": context} if level == "container" else {}
    of_the_pod = {"securityContext": context} if level == "pod" else {}
    done = Site("podman", folder).run(
        [
            pod(
                sh(script, volumeMounts=mounts, **own),
                volumes=[*VOLUMES, {"name": "sec", "secret": {"secretName": "s"}}],
                **of_the_pod,
            ),
            secret("s", stringData={"key": "hidden\n"}),
        ]
    )
    assert done.log("c0").splitlines() == ["1234", "5678", "hidden", "x", "last words"]
    end = done.state.containers["c0"].end
    assert end is not None
    assert (end.exit_code, end.message) == (3, "said\n")


@pytest.mark.podman
@pytest.mark.parametrize("group", [{}, {"runAsGroup": 5678}])
def test_the_sites_user_can_read_the_log_of_a_container_of_another_user(
    folder: Path, group: dict[str, int]
) -> None:
    """The submitter does, and so does the job for the message."""
    context = {"runAsUser": 1234, **group}
    container = sh("echo the log; exit 1", terminationMessagePolicy="FallbackToLogsOnError")
    done = Site("podman", folder).run(pod({**container, "securityContext": context}))
    end = done.state.containers["c0"].end
    assert end is not None
    assert end.message == "the log\n"


@pytest.mark.apptainer
@pytest.mark.parametrize("runtime", ["apptainer", "host-alice"])
def test_elsewhere_a_container_runs_as_the_sites_user_whatever_the_pod_says(
    folder: Path, runtime: str
) -> None:
    context = {"runAsUser": 1234, "runAsGroup": 5678, "runAsNonRoot": True, "fsGroup": 9}
    done = Site(runtime, folder).run(pod(sh("id -u; id -g"), securityContext=context))
    assert done.log("c0").split() == [str(ALICE), str(ALICE)]


# --- capabilities --------------------------------------------------------------------------------


@pytest.mark.podman
def test_under_podman_capabilities_are_dropped_and_where_the_site_allows_it_added(
    folder: Path,
) -> None:
    site = Site("podman", folder)
    usual = capabilities(site)
    assert usual & CHOWN
    assert not usual & (SYS_ADMIN | NET_RAW)
    assert capabilities(site, capabilities={"drop": ["ALL"]}) == 0
    assert capabilities(site, capabilities={"drop": ["CHOWN"]}) == usual & ~CHOWN
    assert capabilities(site, capabilities={"add": ["NET_RAW"]}) == usual | NET_RAW
    assert capabilities(site, privileged=True) & SYS_ADMIN


@pytest.mark.apptainer
@pytest.mark.parametrize("runtime", ["apptainer", "host-alice"])
def test_elsewhere_a_container_has_no_capabilities_not_even_as_privileged(
    folder: Path, runtime: str
) -> None:
    site = Site(runtime, folder)
    assert capabilities(site) == 0
    assert capabilities(site, privileged=True) == 0


def test_more_rights_are_refused_unless_the_site_grants_them(site: Site) -> None:
    with pytest.raises(PodRejected) as caught:
        site.start(pod(sh("true", securityContext={"privileged": True})))
    assert str(caught.value) == (
        "pod.spec containers[c0].securityContext.privileged: this site does not allow it"
    )


# --- GPUs ----------------------------------------------------------------------------------------


def asking(script: str, **amounts: str) -> dict[str, Any]:
    return sh(script, resources={"limits": {f"{make}.com/gpu": n for make, n in amounts.items()}})


@pytest.mark.podman
@pytest.mark.parametrize(
    ("make", "variable"),
    [
        ("nvidia", "CUDA_VISIBLE_DEVICES"),
        ("amd", "ROCR_VISIBLE_DEVICES"),
        ("intel", "ZE_AFFINITY_MASK"),
    ],
)
def test_under_podman_a_gpu_is_handed_over_as_a_device_of_the_container_device_interface(
    folder: Path, make: str, variable: str
) -> None:
    """Each one that the batch system has given the job; devices made of a file stand for GPUs."""
    names = ["0", "1", "2"]
    devices = []
    for name in names:
        (folder / f"gpu{name}").touch()
        mount = {"hostPath": f"{folder}/gpu{name}", "containerPath": f"/gpu{name}"}
        edits = {"mounts": [{**mount, "options": ["bind"]}]}
        devices.append({"name": name, "containerEdits": edits})
    spec = {"cdiVersion": "0.6.0", "kind": f"{make}.com/gpu", "devices": devices}
    (folder / "cdi").mkdir()
    (folder / "cdi" / "gpus.json").write_text(json.dumps(spec))
    (folder / "containers.conf").write_text(f'[engine]\ncdi_spec_dirs = ["{folder}/cdi"]\n')
    site = Site("podman", folder)
    header = f"export CONTAINERS_CONF_OVERRIDE={folder}/containers.conf"
    config = with_script(site.config, header=header)
    done = site.run(
        pod(asking(f"ls -d /gpu*; echo ${variable}", **{make: "2"}), sh("ls -d /gpu*")),
        config,
        environment={variable: "0,2"},
    )
    assert done.log("c0").splitlines() == ["/gpu0", "/gpu2", "0,2"], done
    assert "No such file" in done.log("c1")


@pytest.mark.apptainer
@pytest.mark.parametrize(
    ("setting", "flags"),
    [
        ("auto", {"c0": ["--nv"], "c1": ["--rocm"], "c2": []}),
        ("always", {"c0": ["--nv"], "c1": ["--rocm"], "c2": ["--nv"]}),
        ("never", {"c0": [], "c1": [], "c2": []}),
    ],
)
def test_under_apptainer_a_gpu_is_asked_for_by_the_flag_of_its_make(
    folder: Path, setting: str, flags: dict[str, list[str]]
) -> None:
    """The true program, behind one that notes with which words it was called."""
    noting = folder / "apptainer"
    noting.write_text(
        "#!/bin/bash\n"
        "words=$* name=${words##*/secret/env-} name=c${name%%.sh:*}\n"
        f'for word; do echo "$word"; done >"{folder}/words/$name"\n'
        'exec /usr/bin/apptainer "$@"\n'
    )
    noting.chmod(0o755)
    (folder / "words").mkdir(mode=0o777)
    (folder / "words").chmod(0o777)
    site = Site("apptainer", folder)
    runtime = replace(site.config.runtime, executable=str(noting), gpu=setting)
    containers = [asking("true", nvidia="1"), asking("true", amd="1"), sh("true")]
    done = site.run(pod(*containers), replace(site.config, runtime=runtime))
    assert done.ends() == {"c0": 0, "c1": 0, "c2": 0}, [done.log(name) for name in flags]
    for name, expected in flags.items():
        words = (folder / "words" / name).read_text().splitlines()
        assert [word for word in words if word in ("--nv", "--rocm")] == expected


def test_the_gpus_that_the_batch_system_has_given_are_told_to_the_container(
    every_site: Site,
) -> None:
    given = {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2", "ROCR_VISIBLE_DEVICES": "3"}
    script = "echo $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES"
    assert every_site.run(pod(sh(script)), environment=given).log("c0") == "GPU-1,GPU-2 3\n"


# --- names of other hosts ------------------------------------------------------------------------


def test_host_aliases_stand_beside_the_names_that_the_node_knows(every_site: Site) -> None:
    aliases = [
        {"ip": "10.1.2.3", "hostnames": ["db", "db.local"]},
        {"ip": "fd00::7", "hostnames": ["v6.local"]},
    ]
    done = every_site.run(pod(sh("cat /etc/hosts"), hostAliases=aliases))
    known = [line.split() for line in done.log("c0").splitlines() if not line.startswith("#")]
    assert ["10.1.2.3", "db", "db.local"] in known
    assert ["fd00::7", "v6.local"] in known
    assert any("localhost" in names for names in known)


def test_a_config_map_can_be_read_by_a_container_of_another_user(container_site: Site) -> None:
    done = container_site.run(
        [
            pod(
                sh("cat /cfg/key", volumeMounts=[{"name": "cfg", "mountPath": "/cfg"}]),
                securityContext={"runAsUser": 4321},
                volumes=[{"name": "cfg", "configMap": {"name": "cfg", "defaultMode": 0o400}}],
            ),
            config_map("cfg", data={"key": "content\n"}),
        ]
    )
    assert done.log("c0") == "content\n"
