"""Annotations that concern the containers, and the site's header and footer, in running jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from templates.common.errors import PodRejected
from templates.site.build_config import BuildConfig, HostPath, Rules, Volumes
from tests.support.processes import assert_none_left, marked
from tests.support.script_runner import Finished, Running, Site, pod, put_program, sh, with_script

WORK = {"name": "work", "mountPath": "/work"}
VOLUMES = [{"name": "work", "emptyDir": {}}]


def annotated(manifest: dict[str, Any], **annotations: str) -> dict[str, Any]:
    named = {f"slurm-job.vk.io/{name.replace('_', '-')}": v for name, v in annotations.items()}
    metadata = {**manifest["metadata"], "annotations": named}
    return {**manifest, "metadata": metadata}


def run(
    site: Site, manifest: dict[str, Any], config: Optional[BuildConfig] = None, **annotations: str
) -> Finished:
    return site.run(annotated(manifest, **annotations), config)


# --- pre-exec ------------------------------------------------------------------------------------


def test_pre_exec_runs_on_the_node_before_the_containers(every_site: Site) -> None:
    every_site.folder.chmod(0o1777)
    trace = every_site.folder / "trace"
    done = run(
        every_site,
        pod(sh("true")),
        pre_exec=f"echo \"$(id -u) $BASH_VERSION '$0'\" >{trace}\nx='a  b'; echo \"$x\" >>{trace}",
    )
    assert done.code == 0, done
    first, second = trace.read_text().splitlines()
    assert first.split()[1], "it is bash"
    assert second == "a  b"


@pytest.mark.parametrize("code", [0, 5])
def test_a_pre_exec_that_exits_ends_the_pod_in_words(site: Site, code: int) -> None:
    done = run(site, pod(sh("echo never")), pre_exec=f"exit {code}")
    assert done.code == done.state.exit_code == (code or 1)
    assert "before its containers" in done.state.message
    assert not list(done.directory.glob("logs/c0.*"))
    assert not (done.directory / "secret").exists()


def test_a_pre_exec_whose_last_command_fails_does_not_end_the_pod(site: Site) -> None:
    # As in every shell script: "[ -f x ] && . x" is a fine last line.
    done = run(site, pod(sh("echo ran")), pre_exec="[ -f /no/such/file ] && . /no/such/file")
    assert (done.code, done.log("c0")) == (0, "ran\n")


def test_what_pre_exec_has_loaded_reaches_the_runtime_and_not_the_containers(site: Site) -> None:
    done = run(site, pod(sh('echo "[$LOADED]"; echo end')), pre_exec="export LOADED=by-pre-exec")
    assert done.log("c0") == "[]\nend\n"


def test_a_job_can_be_ended_during_its_pre_exec(site: Site) -> None:
    running = site.start(
        annotated(pod(sh("echo never")), pre_exec="for i in $(seq 600); do sleep 0.1; done")
    )
    running.until(lambda state: state.started_ms)
    running.terminate()
    done = running.wait(120)
    assert done.code != 0
    assert "the batch system ended the job" in done.state.message
    assert not list(done.directory.glob("logs/c0.*"))


def test_a_mesh_script_that_pre_exec_leaves_behind_starts_the_rest(site: Site) -> None:
    site.folder.chmod(0o1777)
    trace = site.folder / "trace"
    mesh = (
        "cat <<'EOFMESH' > $TMPDIR/mesh.sh\n"
        "#!/bin/bash\n"
        f'echo mesh >>{trace}; MESH_CODE=0; "$@"; MESH_CODE=$?; echo over $MESH_CODE >>{trace}\n'
        "exit $MESH_CODE\n"
        "EOFMESH\n"
        "chmod +x $TMPDIR/mesh.sh\n"
    )
    done = run(
        site,
        pod(
            sh("cat /work/x; exit 3", volumeMounts=[WORK]),
            initContainers=[
                {
                    "name": "init",
                    "image": "busybox:1.36",
                    **sh("echo hi >/work/x", volumeMounts=[WORK]),
                }
            ],
            volumes=VOLUMES,
        ),
        pre_exec=mesh,
    )
    assert (done.code, done.ends(), done.log("c0")) == (3, {"init": 0, "c0": 3}, "hi\n"), done
    assert trace.read_text() == "mesh\nover 3\n"
    assert done.state.exit_code == 3
    assert not (done.directory / "secret").exists()
    names = [(record.stream, record.run, record.number) for record in done.records]
    assert len(set(names)) == len(names)


# --- what concerns a container's start ----------------------------------------------------------


def test_singularity_commands_run_before_each_start_of_a_container(site: Site) -> None:
    site.folder.chmod(0o1777)
    trace = site.folder / "trace"
    done = site.run(
        annotated(
            pod(
                sh("[ -e /work/x ] || { touch /work/x; exit 1; }", volumeMounts=[WORK]),
                sh("true"),
                volumes=VOLUMES,
                restartPolicy="OnFailure",
            ),
            singularity_commands=f"echo start >>{trace}",
        )
    )
    assert done.code == 0
    assert trace.read_text() == "start\n" * 3


def test_singularity_mounts_show_paths_of_the_node(site: Site) -> None:
    data = site.folder / "data"
    data.mkdir()
    (data / "file").write_text("from the node")
    for path in (data, data / "file"):
        path.chmod(0o777)
    done = run(
        site,
        pod(sh("cat /mnt/a/file; echo x 2>/dev/null >/mnt/a/new || echo; echo y >/mnt/b/file2")),
        singularity_mounts=f"--bind {data}:/mnt/a:ro --bind={data}:/mnt/b",
    )
    assert (done.code, done.log("c0")) == (0, "from the node\n"), done.log("c0")
    assert sorted(path.name for path in data.iterdir()) == ["file", "file2"]


def test_singularity_mounts_are_held_to_what_the_site_says_of_its_paths(site: Site) -> None:
    data, other = site.folder / "data", site.folder / "other"
    for path in (data, other):
        path.mkdir()
        path.chmod(0o777)
    (data / "link").symlink_to(other)
    volumes = Volumes(host_paths=(HostPath(str(data), read_only=True),))
    config = replace(site.config, volumes=volumes)
    done = run(site, pod(sh("echo >/x/new")), config, singularity_mounts=f"{data}:/x")
    assert done.code != 0
    assert [path.name for path in data.iterdir()] == ["link"]
    done = run(site, pod(sh("true")), config, singularity_mounts=f"{data}/link:/x:ro")
    assert f"leads to {other}, which this site does not allow" in str(done.state.containers)


def test_singularity_options_reach_the_runtime(container_site: Site) -> None:
    option = {"apptainer": "--env", "podman": "--env"}[container_site.runtime]
    done = run(
        container_site,
        pod(sh('echo "$A"')),
        singularity_options=f"{option} \"A=one 'two' $HOME\"",
    )
    assert done.log("c0") == "one 'two' $HOME\n"


@pytest.mark.apptainer  # image files are Apptainer's
def test_image_root_is_where_the_pods_images_are(folder: Path) -> None:
    site = Site("apptainer", folder)
    root = folder / "my images"
    root.mkdir()
    running = site.run(pod(sh("true")))  # brings the image into the cache
    assert running.code == 0
    image = next((folder / "images").glob("*busybox*"))
    (root / "mine.sif").symlink_to(image)
    done = run(site, pod({**sh("echo from the root"), "image": "mine.sif"}), image_root=str(root))
    assert (done.code, done.log("c0")) == (0, "from the root\n"), done


def test_mpi_flags_put_mpiexec_before_main_containers_only(site: Site) -> None:
    # Stands for an MPI's launcher: starts the command as often as it is told, side by side.
    path = put_program(
        site.folder,
        "mpiexec",
        """#!/bin/bash
        [ "$1" = -np ] || exit 90
        n=$2; shift 2
        [ "$1 $2" = "--map-by 'x y'" ] || [ "$1|$2" = "--map-by|x y" ] || exit 91
        shift 2
        pids=()
        for ((i = 0; i < n; i++)); do PMI_RANK=$i "$@" & pids+=($!); done
        for pid in "${pids[@]}"; do wait "$pid" || exit; done
        """,
    )
    config = replace(site.config, environment=replace(site.config.environment, path=(path,)))
    done = site.run(
        annotated(
            pod(
                sh("echo rank"),
                initContainers=[{"name": "init", "image": "busybox:1.36", **sh("echo one")}],
            ),
            mpi_flags="--map-by 'x y'",
        ),
        config,
        environment={"SLURM_NTASKS": "1" if site.runtime == "podman" else "3"},
    )
    assert done.ends() == {"init": 0, "c0": 0}, done.log("c0")
    assert done.log("init") == "one\n"
    assert done.log("c0") == "rank\n" * (1 if site.runtime == "podman" else 3)


def test_commands_for_the_tunnel_run_beside_the_containers_and_end_with_them(site: Site) -> None:
    site.folder.chmod(0o1777)
    trace = site.folder / "trace"
    loop = f"export {marked(site.folder, {})['env'][0]['name']}={site.folder.name}; "
    commands = f"{loop} while :; do echo alive >>{trace}; sleep 0.1; done & sleep 600 &"
    manifest = pod(
        sh("echo up; until [ -e /work/go ]; do sleep 0.1; done", volumeMounts=[WORK]),
        volumes=VOLUMES,
    )
    manifest["metadata"]["annotations"] = {"interlink.eu/wstunnel-client-commands": commands}
    running: Running = site.start(manifest)
    running.until(lambda _: trace.exists() and trace.read_text().count("alive") > 3)
    running.until(lambda _: (running.directory / "scratch" / "work").is_dir())
    (running.directory / "scratch" / "work" / "go").touch()
    assert running.wait().code == 0
    assert_none_left(site.folder)


def test_interlinks_address_of_the_pod_is_told_to_it(site: Site) -> None:
    manifest = pod(sh('echo "$POD_IP"'))
    manifest["metadata"]["annotations"] = {"interlink.eu/pod-ip": "10.7.0.2"}
    assert site.run(manifest).log("c0") == "10.7.0.2\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pre-exec", "true"),
        ("singularity-commands", "true"),
        ("singularity-mounts", "--bind /etc:/mnt"),
        ("singularity-options", "--env A=b"),
        ("image-root", "/images"),
        ("mpi-flags", "-v"),
    ],
)
def test_what_a_site_forbids_is_refused_by_its_name(folder: Path, name: str, value: str) -> None:
    site = Site("host", folder)
    config = replace(site.config, rules=Rules(forbidden_annotations=(name,)))
    manifest = annotated(pod(sh("true")), **{name: value})
    with pytest.raises(PodRejected, match=name) as caught:
        site.start(manifest, config)
    assert "does not allow" in str(caught.value)


# --- the site's own bash ------------------------------------------------------------------------


def test_the_header_runs_first_and_the_footer_last(site: Site) -> None:
    site.folder.chmod(0o1777)
    trace = site.folder / "trace"
    config = with_script(
        site.config, header=f"echo header >>{trace}", footer=f"echo footer >>{trace}"
    )
    done = run(site, pod(sh("exit 4")), config, pre_exec=f"echo pre-exec >>{trace}")
    assert done.code == 4
    assert trace.read_text().split() == ["header", "pre-exec", "footer"]


def test_a_header_that_exits_ends_the_pod_in_words(site: Site) -> None:
    config = with_script(site.config, header="exit 0")
    done = site.run(pod(sh("echo never")), config)
    assert done.code == 1
    assert "before its containers" in done.state.message
    assert not list(done.directory.glob("logs/c0.*"))


def test_a_footer_that_exits_changes_nothing(site: Site) -> None:
    config = with_script(site.config, footer="exit 9")
    done = site.run(pod(sh("exit 4")), config)
    assert done.code == done.state.exit_code == 4
    assert not (done.directory / "secret").exists()


def test_the_footer_runs_after_a_pod_that_was_ended_too(site: Site) -> None:
    site.folder.chmod(0o1777)
    trace = site.folder / "trace"
    running = site.start(
        pod(sh("echo up; sleep 600"), terminationGracePeriodSeconds=1),
        with_script(site.config, footer=f"echo footer >>{trace}"),
    )
    log = running.directory / "logs" / "c0.0.log"
    running.until(lambda _: log.exists() and log.read_text() == "up\n")
    running.terminate()
    running.wait()
    assert trace.read_text() == "footer\n"


def test_header_and_pre_exec_leave_the_containers_environment_alone(site: Site) -> None:
    config = with_script(site.config, header="export A=1; cd /tmp; umask 0; set -efu; IFS=x")
    done = run(site, pod(sh('echo "$A" "$B"; pwd')), config, pre_exec="export B=2; IFS=y")
    assert (done.code, done.log("c0")) == (0, " \n/\n")


def test_pre_exec_cannot_lead_the_script_astray(site: Site) -> None:
    precious = site.folder / "precious"
    precious.mkdir(mode=0o777)
    names = "JOB DIR RUN SCRATCH SPOOL CONTAINERS GRACE n result ending stop name index watcher"
    clobber = "".join(f"export {name}={precious}\n" for name in names.split())
    functions = "finish() { :; }; record() { :; }; supervise() { :; }; trap - EXIT TERM\n"
    done = run(site, pod(sh("echo ran; exit 3")), pre_exec=clobber + functions)
    assert (done.code, done.log("c0")) == (3, "ran\n"), done
    assert (done.state.exit_code, done.state.message) == (3, "")
    assert precious.is_dir()
    assert not (done.directory / "secret").exists()
