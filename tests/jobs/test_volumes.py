"""What a container finds where a volume is mounted, and what is left of it afterwards."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from templates.common.errors import PodRejected
from templates.site.build_config import BuildConfig, Claim, HostPath, NfsExport
from tests.support.script_runner import BUSYBOX, Finished, Site, config_map, pod, secret, sh

UTF8 = "é 🚀 'q' \"d\" `id` $(id) $HOME \\n\n"


def at(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "mountPath": path, **more}


def empty_dir(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "emptyDir": more}


def init(script: str, **more: Any) -> dict[str, Any]:
    return {"name": "init", "image": BUSYBOX, **sh(script, **more)}


def lines(done: Finished, container: str = "c0") -> list[str]:
    return done.log(container).splitlines()


def reason(done: Finished, container: str = "c0") -> str:
    """Why a container did not start; fails if it did."""
    end = done.state.containers[container].end
    assert end is not None
    assert end.exit_code == 128, done.log(container)
    assert done.log(container) == end.message + "\n"
    return end.message


def with_volumes(config: BuildConfig, **changes: Any) -> BuildConfig:
    return replace(config, volumes=replace(config.volumes, **changes))


def open_folder(parent: Path, name: str) -> Path:
    """A folder of the site that jobs can write to, whoever they run as."""
    path = parent / name
    path.mkdir()
    path.chmod(0o777)
    return path


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory; the names of jobs are those of their pods, so tests cannot share one."""
    path = Path(tempfile.mkdtemp(prefix="interlink-test-", dir="/dev/shm"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


# --- emptyDir ----------------------------------------------------------------------------------


@pytest.mark.parametrize("medium", ["", "Memory"])
def test_an_empty_dir_is_shared_by_init_and_main_containers(
    every_site: Site, medium: str, memory: Path
) -> None:
    mounts = {"volumeMounts": [at("work", "/shared/work")]}
    done = every_site.run(
        pod(
            sh(
                "cd /shared/work; while [ ! -e second ]; do sleep 0.1; done; "
                "cat first second; touch done",
                **mounts,
            ),
            sh(
                "cd /shared/work; echo two >second; while [ ! -e done ]; do sleep 0.1; done; ls",
                **mounts,
            ),
            initContainers=[init("ls -A /shared/work; echo one >/shared/work/first", **mounts)],
            volumes=[empty_dir("work", medium=medium)],
        ),
        with_volumes(every_site.config, memory=str(memory)),
    )
    assert done.ends() == {"init": 0, "c0": 0, "c1": 0}
    assert done.log("init") == ""  # empty at first
    assert lines(done) == ["one", "two"]
    assert lines(done, "c1") == ["done", "first", "second"]


def test_an_empty_dir_in_memory_is_in_memory(site: Site, memory: Path) -> None:
    done = site.run(
        pod(
            sh("stat -f -c %t /mem", volumeMounts=[at("mem", "/mem")]),
            volumes=[empty_dir("mem", medium="Memory")],
        ),
        with_volumes(site.config, memory=str(memory)),
    )
    assert done.log("c0") == "1021994\n"  # what the kernel calls a tmpfs


def test_anybody_in_a_container_can_write_to_an_empty_dir(site: Site, memory: Path) -> None:
    done = site.run(
        pod(
            sh(
                "stat -c %a /a /b; mkdir /a/x; echo >/b/y",
                volumeMounts=[at("a", "/a"), at("b", "/b")],
            ),
            volumes=[empty_dir("a"), empty_dir("b", medium="Memory")],
        ),
        with_volumes(site.config, memory=str(memory)),
    )
    assert (done.log("c0"), done.ends()) == ("777\n777\n", {"c0": 0})


def test_an_empty_dir_that_outgrows_its_size_limit_ends_the_pod(every_site: Site) -> None:
    done = every_site.run(
        pod(
            sh(
                "dd if=/dev/zero of=/work/big bs=1024 count=3072 2>/dev/null; sleep 600",
                volumeMounts=[at("work", "/work")],
            ),
            sh("trap 'exit 0' TERM; while :; do sleep 0.1; done"),
            volumes=[empty_dir("work", sizeLimit="1Mi")],
            terminationGracePeriodSeconds=2,
        )
    )
    words = 'Evicted: usage of EmptyDir volume "work" exceeds the limit of 1048576 bytes'
    assert done.state.message.startswith(words)
    assert done.code != 0
    assert done.state.containers["c0"].end.message.startswith(words)
    assert done.ends()["c0"] in (137, 143)


def test_a_path_may_end_with_a_new_line(folder: Path) -> None:
    shown = {"name": "work", "mountPath": "/mnt/place\n", "subPath": "part\n"}
    script = 'echo x >"$1/x"; cd /mnt/work; for i in *; do echo "<$i>"; done'
    whole = {"name": "work", "mountPath": "/mnt/work"}
    done = Site("host", folder).run(
        pod(sh(script, "/mnt/place\n", volumeMounts=[whole, shown]), volumes=[empty_dir("work")])
    )
    assert (done.code, done.log("c0")) == (0, "<part\n>\n")


def test_a_working_directory_without_a_slash_is_below_the_root(folder: Path) -> None:
    mount = {"name": "work", "mountPath": "-"}
    container = sh("pwd", workingDir="-", volumeMounts=[mount])
    done = Site("host", folder).run(pod(container, volumes=[empty_dir("work")]))
    assert (done.code, done.log("c0")) == (0, "/-\n")


def test_an_ephemeral_volume_lives_as_long_as_the_pod(site: Site) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    mount = {"name": "own", "mountPath": "/own"}
    done = site.run(
        pod(
            sh("cat /own/x; ls /own", volumeMounts=[mount]),
            initContainers=[
                {"name": "i", "image": BUSYBOX, **sh("echo y >/own/x", volumeMounts=[mount])}
            ],
            volumes=[volume],
        )
    )
    assert (done.code, done.log("c0")) == (0, "y\nx\n")
    assert not (done.directory / "scratch").exists()


def test_an_empty_dir_within_its_size_limit_does_no_harm(site: Site) -> None:
    done = site.run(
        pod(
            sh("echo x >/work/x; sleep 3", volumeMounts=[at("work", "/work")]),
            volumes=[empty_dir("work", sizeLimit="1Mi")],
        )
    )
    assert done.ends() == {"c0": 0}


# --- ConfigMaps, Secrets, projected volumes, the downward API ------------------------------------


def show(path: str) -> str:
    """Name, mode and content (in hexadecimal) of every file below a path, sorted."""
    return (
        f"cd {path} && find . -type f | sort | while read -r f; do "
        "echo $f $(stat -L -c %a $f) $(od -An -v -tx1 <$f | tr -d ' \\n'); done"
    )


def found(text: str) -> dict[str, tuple[str, bytes]]:
    """What ``show`` says: the path of each file, with its mode and its content."""
    entries = [[*line.split(" "), ""][:3] for line in text.splitlines()]
    return {path[2:]: (mode, bytes.fromhex(content)) for path, mode, content in entries}


def test_a_config_map_has_all_its_keys_as_files(every_site: Site) -> None:
    binary = bytes(range(256))
    done = every_site.run(
        [
            pod(
                sh(show("/etc/app"), volumeMounts=[at("cfg", "/etc/app")]),
                volumes=[{"name": "cfg", "configMap": {"name": "app"}}],
            ),
            config_map(
                "app",
                data={"a.yaml": "k: v\n", "empty": "", "utf-8": UTF8},
                binaryData={"x.bin": base64.b64encode(binary).decode()},
            ),
        ]
    )
    assert found(done.log("c0")) == {
        "a.yaml": ("644", b"k: v\n"),
        "empty": ("644", b""),
        "utf-8": ("644", UTF8.encode()),
        "x.bin": ("644", binary),
    }


def test_items_choose_name_and_set_the_mode_of_keys(site: Site) -> None:
    items = [
        {"key": "a", "path": "conf/deep/a.txt"},
        {"key": "b", "path": "b", "mode": 0o400},
        {"key": "a", "path": "again"},
    ]
    source = {"name": "app", "defaultMode": 0o750, "items": items}
    done = site.run(
        [
            pod(
                sh(show("/etc/app"), volumeMounts=[at("cfg", "/etc/app")]),
                volumes=[{"name": "cfg", "configMap": source}],
            ),
            config_map("app", data={"a": "A", "b": "B", "c": "C"}),
        ]
    )
    assert found(done.log("c0")) == {
        "conf/deep/a.txt": ("750", b"A"),
        "b": ("400", b"B"),
        "again": ("750", b"A"),
    }


def test_a_secret_is_decoded_and_has_its_modes(every_site: Site) -> None:
    source = {
        "secretName": "s",
        "defaultMode": 0o600,
        "items": [{"key": "pw", "path": "word"}, {"key": "raw", "path": "raw", "mode": 0o444}],
    }
    done = every_site.run(
        [
            pod(
                sh(show("/etc/s"), volumeMounts=[at("s", "/etc/s")]),
                volumes=[{"name": "s", "secret": source}],
            ),
            secret(
                "s", data={"raw": base64.b64encode(b"\x00\xff\n").decode()}, stringData={"pw": "p"}
            ),
        ]
    )
    assert found(done.log("c0")) == {"word": ("600", b"p"), "raw": ("444", b"\x00\xff\n")}


def test_a_folder_of_a_volume_can_be_read_by_everybody_in_the_container(site: Site) -> None:
    items = [{"key": "a", "path": "sub/a"}]
    done = site.run(
        [
            pod(
                sh("stat -c %a /c /c/sub /s", volumeMounts=[at("c", "/c"), at("s", "/s")]),
                volumes=[
                    {"name": "c", "configMap": {"name": "c", "items": items}},
                    {"name": "s", "secret": {"secretName": "s"}},
                ],
            ),
            config_map("c", data={"a": "A"}),
            secret("s", stringData={"a": "A"}),
        ]
    )
    assert lines(done) == ["755", "755", "755"]


@pytest.mark.parametrize(
    "source",
    [
        {"configMap": {"name": "none", "optional": True}},
        {"secret": {"secretName": "none", "optional": True}},
        {"configMap": {"name": "bare"}},
        {"projected": {"sources": []}},
        {"projected": {"sources": [{"secret": {"name": "none", "optional": True}}]}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
    ],
    ids=["config-map", "secret", "no-keys", "no-sources", "projected", "no-token"],
)
def test_what_is_optional_and_not_there_is_an_empty_folder(
    site: Site, source: dict[str, Any]
) -> None:
    done = site.run(
        [
            pod(
                sh("ls -A /etc/app; stat -c %F /etc/app", volumeMounts=[at("v", "/etc/app")]),
                volumes=[{"name": "v", **source}],
            ),
            config_map("bare"),
        ]
    )
    assert done.log("c0") == "directory\n"


def test_a_projected_volume_puts_all_its_sources_together(every_site: Site) -> None:
    sources = [
        {"configMap": {"name": "c", "items": [{"key": "a", "path": "maps/a", "mode": 0o640}]}},
        {"secret": {"name": "s", "items": [{"key": "pw", "path": "pw"}]}},
        {
            "downwardAPI": {
                "items": [
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {
                        "path": "cpu",
                        "resourceFieldRef": {
                            "containerName": "c0",
                            "resource": "limits.cpu",
                            "divisor": "1m",
                        },
                    },
                ]
            }
        },
    ]
    manifest = pod(
        sh(
            show("/p"),
            volumeMounts=[at("p", "/p")],
            resources={"limits": {"cpu": "1500m"}},
        ),
        volumes=[{"name": "p", "projected": {"sources": sources, "defaultMode": 0o444}}],
    )
    manifest["metadata"]["labels"] = {"app": "a"}
    done = every_site.run(
        [manifest, config_map("c", data={"a": "A", "b": "B"}), secret("s", stringData={"pw": "P"})]
    )
    assert found(done.log("c0")) == {
        "maps/a": ("640", b"A"),
        "pw": ("444", b"P"),
        "labels": ("444", b'app="a"'),
        "cpu": ("444", b"1500"),
    }


def test_the_downward_api_writes_files(site: Site) -> None:
    items = [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "notes/all", "fieldRef": {"fieldPath": "metadata.annotations"}, "mode": 0o400},
    ]
    manifest = pod(
        sh(show("/info"), volumeMounts=[at("info", "/info")]),
        name="train-0",
        volumes=[{"name": "info", "downwardAPI": {"items": items}}],
    )
    manifest["metadata"]["annotations"] = {"note": 'say "$(id)"\n'}
    done = site.run(manifest)
    assert found(done.log("c0")) == {
        "name": ("644", b"train-0"),
        "notes/all": ("400", b'note="say \\"$(id)\\"\\n"'),
    }


# --- hostPath ----------------------------------------------------------------------------------


def run_host_path(site: Site, path: Path, kind: str, *allowed: HostPath, **more: Any) -> Finished:
    script = more.pop("script", "ls -ld /h; if [ -d /h ]; then ls -A /h; else cat /h; fi")
    return site.run(
        pod(
            sh(script, volumeMounts=[at("h", "/h", **more)]),
            volumes=[{"name": "h", "hostPath": {"path": str(path), "type": kind}}],
        ),
        with_volumes(site.config, host_paths=allowed),
    )


def test_host_paths_of_the_right_type_are_mounted(site: Site) -> None:
    data = open_folder(site.folder, "data")
    (data / "file").write_text("content\n")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(data / "socket"))
    allowed = HostPath(str(data))
    for kind in ("", "Directory", "DirectoryOrCreate"):
        done = run_host_path(site, data, kind, allowed)
        assert lines(done)[1:] == ["file", "socket"], kind
    for kind in ("", "File", "FileOrCreate"):
        done = run_host_path(site, data / "file", kind, allowed)
        assert lines(done)[1:] == ["content"], kind
    done = run_host_path(site, data / "socket", "Socket", allowed, script="stat -c %F /h")
    assert lines(done) == ["socket"]
    listening.close()


def test_host_paths_that_are_not_there_are_made_if_the_type_says_so(site: Site) -> None:
    data = open_folder(site.folder, "data")
    allowed = HostPath(str(data))
    done = run_host_path(site, data / "x" / "y", "DirectoryOrCreate", allowed, script="echo >/h/z")
    assert done.ends() == {"c0": 0}
    assert (data / "x" / "y" / "z").exists()
    assert stat.S_IMODE((data / "x" / "y").stat().st_mode) == 0o755
    done = run_host_path(site, data / "f", "FileOrCreate", allowed, script="echo text >/h")
    assert (data / "f").read_text() == "text\n"
    assert stat.S_IMODE((data / "f").stat().st_mode) == 0o644


@pytest.mark.parametrize("kind", ["", "Directory", "File", "Socket", "CharDevice", "BlockDevice"])
def test_a_host_path_that_is_not_there_is_said_to_be_missing(site: Site, kind: str) -> None:
    data = open_folder(site.folder, "data")
    done = run_host_path(site, data / "none", kind, HostPath(str(data)))
    assert reason(done) == f"hostPath {data / 'none'} does not exist on {done.state.node}"
    assert list(data.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("folder", "File"),
        ("folder", "FileOrCreate"),
        ("folder", "Socket"),
        ("folder", "CharDevice"),
        ("folder", "BlockDevice"),
        ("file", "Directory"),
        ("file", "DirectoryOrCreate"),
    ],
)
def test_a_host_path_of_another_type_is_refused(site: Site, name: str, kind: str) -> None:
    data = open_folder(site.folder, "data")
    (data / "folder").mkdir()
    (data / "file").touch()
    done = run_host_path(site, data / name, kind, HostPath(str(data)))
    assert reason(done) == f"hostPath {data / name} is not of type {kind}"


def test_a_device_can_be_a_host_path(site: Site) -> None:
    script = "stat -L -c %t:%T /h"
    if site.runtime != "apptainer":  # whose mounts no device can be opened on
        script += "; echo gone >/h"
    done = run_host_path(
        site, Path("/dev/null"), "CharDevice", HostPath("/dev/null"), script=script
    )
    assert (lines(done), done.ends()) == (["1:3"], {"c0": 0})


def test_a_host_path_outside_of_the_sites_list_is_refused_before_anything_starts(
    site: Site,
) -> None:
    data = open_folder(site.folder, "data")
    for path in ("/etc", f"{data}-other", str(site.folder)):
        with pytest.raises(PodRejected) as caught:
            run_host_path(site, Path(path), "", HostPath(str(data)))
        assert str(caught.value) == (
            f"pod.spec.volumes[h].hostPath.path: {path} "
            f"is not allowed at this site (allowed: {data})"
        )


@pytest.mark.parametrize("kind", ["", "Directory", "DirectoryOrCreate", "FileOrCreate"])
def test_a_link_does_not_lead_out_of_the_sites_list(site: Site, kind: str) -> None:
    data, other = open_folder(site.folder, "data"), open_folder(site.folder, "other")
    (other / "there").mkdir()
    (data / "link").symlink_to(other)
    for name in ("there", "new"):
        done = run_host_path(site, data / "link" / name, kind, HostPath(str(data)))
        words = (
            f"hostPath {data}/link/{name} leads to {other}/{name}, which this site does not allow"
        )
        assert reason(done) == words
    assert [path.name for path in other.iterdir()] == ["there"]  # and nothing was made there


def test_the_sites_own_entry_may_be_a_link(site: Site) -> None:
    data = open_folder(site.folder, "data")
    (data / "x").touch()
    (site.folder / "alias").symlink_to(data)
    done = run_host_path(
        site, site.folder / "alias", "Directory", HostPath(str(site.folder / "alias"))
    )
    assert lines(done)[1:] == ["x"]


def test_a_host_path_is_read_only_where_the_site_says_so(every_site: Site) -> None:
    data = open_folder(every_site.folder, "data")
    (data / "ro").mkdir()
    (data / "ro").chmod(0o777)
    allowed = (HostPath(str(data)), HostPath(str(data / "ro"), read_only=True))
    done = run_host_path(every_site, data / "ro", "", *allowed, script="echo x >/h/x")
    assert done.ends() != {"c0": 0}
    assert "ead-only file system" in done.log("c0")
    assert list((data / "ro").iterdir()) == []


def test_hostile_names_of_host_paths_and_mount_paths_are_taken_as_they_are(
    every_site: Site,
) -> None:
    name = "a, b\"c'd$(id) `id` \\ * ü"
    data = open_folder(every_site.folder, name)
    (data / "x").write_text("here\n")
    target = "/mnt/t, \"q' $(id) * ü"
    done = every_site.run(
        pod(
            {"command": ["cat", f"{target}/x"], "volumeMounts": [at("h", target, readOnly=True)]},
            volumes=[{"name": "h", "hostPath": {"path": str(data)}}],
        ),
        with_volumes(every_site.config, host_paths=(HostPath(str(every_site.folder)),)),
    )
    assert done.log("c0") == "here\n"


# --- claims ------------------------------------------------------------------------------------


def run_claim(site: Site, claims: dict[str, Claim], script: str, **source: Any) -> Finished:
    claim = {"claimName": "data", **source}
    return site.run(
        pod(
            sh(script, volumeMounts=[at("data", "/data")]),
            volumes=[{"name": "data", "persistentVolumeClaim": claim}],
        ),
        with_volumes(site.config, claims=claims),
    )


def test_a_claim_is_the_place_that_the_site_gives_it(every_site: Site) -> None:
    own = open_folder(every_site.folder, "default")
    (own / "data").mkdir()
    (own / "data").chmod(0o777)
    claims = {
        "data": Claim("/no/such/place"),
        "default/data": Claim(f"{every_site.folder}/$namespace/$claim"),
    }
    done = run_claim(every_site, claims, "echo kept >/data/x; ls /data")
    assert done.log("c0") == "x\n"
    assert (own / "data" / "x").read_text() == "kept\n"


@pytest.mark.parametrize("by", ["site", "pod"])
def test_a_claim_can_be_read_only(site: Site, by: str) -> None:
    folder = open_folder(site.folder, "data")
    claim = Claim(str(folder), read_only=by == "site")
    done = run_claim(site, {"data": claim}, "echo x >/data/x", readOnly=by == "pod")
    assert done.ends()["c0"] != 0
    assert list(folder.iterdir()) == []


def test_a_claim_whose_place_is_missing_says_so(site: Site) -> None:
    done = run_claim(site, {"data": Claim("/no/such/place")}, "true")
    assert reason(done) == f"/data: /no/such/place does not exist on {done.state.node}"


# --- nfs ---------------------------------------------------------------------------------------


def run_nfs(site: Site, path: str, script: str) -> Finished:
    """With /projects of a server, which the nodes have in the folder of the test."""
    (site.folder / "projects").mkdir(exist_ok=True)
    volume = {"name": "data", "nfs": {"server": "nfs.example.org", "path": f"/projects/{path}"}}
    export = NfsExport("nfs.example.org", "/projects", f"{site.folder}/projects")
    return site.run(
        pod(sh(script, volumeMounts=[at("data", "/data")]), volumes=[volume]),
        with_volumes(site.config, nfs=(export,)),
    )


def test_an_nfs_volume_is_what_the_nodes_have_mounted(every_site: Site) -> None:
    folder = every_site.folder / "projects" / "a b"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    done = run_nfs(every_site, "a b", "echo kept >/data/x; ls /data")
    assert done.log("c0") == "x\n"
    assert (folder / "x").read_text() == "kept\n"


def test_an_nfs_volume_leads_nowhere_else(site: Site) -> None:
    (site.folder / "projects").mkdir()
    (site.folder / "projects" / "out").symlink_to("/etc")
    done = run_nfs(site, "out", "true")
    assert "leads to /etc, which this site does not allow" in reason(done)
    assert "does not exist" in reason(run_nfs(site, "none", "true"))


# --- mounts ------------------------------------------------------------------------------------


def test_a_read_only_mount_cannot_be_written_to(every_site: Site) -> None:
    script = (
        "for d in /ro /cfg /s /ro/sub; do echo x >$d/new; echo x >>$d/old; rm -f $d/old; done; "
        "echo x >/rw/new && cat /rw/old"
    )
    done = every_site.run(
        [
            pod(
                sh(
                    script,
                    volumeMounts=[
                        at("work", "/ro", readOnly=True),
                        at("work", "/rw"),
                        at("cfg", "/cfg"),
                        at("s", "/s"),
                    ],
                ),
                initContainers=[
                    init(
                        "mkdir /w/sub; echo kept | tee /w/old >/w/sub/old",
                        volumeMounts=[at("work", "/w")],
                    )
                ],
                volumes=[
                    empty_dir("work"),
                    {"name": "cfg", "configMap": {"name": "cfg"}},
                    {"name": "s", "secret": {"secretName": "s"}},
                ],
            ),
            config_map("cfg", data={"old": "kept"}),
            secret("s", stringData={"old": "kept"}),
        ]
    )
    assert lines(done)[-1] == "kept"
    assert done.log("c0").lower().count("read-only file system") == 12
    assert done.ends() == {"init": 0, "c0": 0}


def test_mounts_lie_inside_each_other_whatever_their_order(every_site: Site) -> None:
    mounts = [
        at("deep", "/a/b/c/d"),
        at("file", "/a/b/file", subPath="key"),
        at("cfg", "/a/b/c", readOnly=True),
        at("outer", "/a"),
        at("inner", "/a/b"),
    ]
    volumes = [
        *(empty_dir(name) for name in ("deep", "outer", "inner")),
        {"name": "cfg", "configMap": {"name": "cfg"}},
        {"name": "file", "configMap": {"name": "cfg"}},
    ]
    script = (
        "echo 1 >/a/x; echo 2 >/a/b/x; cat /a/b/c/key /a/b/file; "
        "echo 3 >/a/b/c/d/x; cat /a/x /a/b/x /a/b/c/d/x"
    )
    for order in (mounts, mounts[::-1]):
        done = every_site.run(
            [
                pod(sh(script, volumeMounts=order), volumes=volumes),
                config_map("cfg", data={"key": "content\n"}),
            ]
        )
        assert lines(done) == ["content", "content", "1", "2", "3"], order
        assert done.ends() == {"c0": 0}


def test_a_volume_can_be_mounted_where_the_image_has_nothing_and_over_what_it_has(
    every_site: Site,
) -> None:
    new = "/opt/not/there/at/all"
    script = f"ls -A {new} /srv; ls -d {new}; cat /srv/here; ls /usr/bin/env"
    done = every_site.run(
        pod(
            sh(script, volumeMounts=[at("work", "/opt/not/there/at/all"), at("work", "/srv")]),
            initContainers=[init("touch /w/here", volumeMounts=[at("work", "/w")])],
            volumes=[empty_dir("work")],
        )
    )
    assert lines(done) == [
        "/opt/not/there/at/all:",
        "here",
        "",
        "/srv:",
        "here",
        "/opt/not/there/at/all",
        "/usr/bin/env",
    ]


def test_a_mount_does_not_change_the_site(every_site: Site) -> None:
    root = Path(f"/no-{os.getpid()}-such")
    done = every_site.run(
        pod(
            sh(
                f"echo x >{root}/deep/x; cat {root}/deep/x",
                volumeMounts=[at("work", f"{root}/deep")],
            ),
            volumes=[empty_dir("work")],
        )
    )
    assert done.log("c0") == "x\n"
    assert not root.exists()


def test_a_mount_over_the_folder_that_the_job_is_in_hides_nothing_else(every_site: Site) -> None:
    """As an emptyDir on /tmp does, where jobs or their scratch directories are below /tmp."""
    above = every_site.folder.parent
    mounts = [at("work", str(above)), at("cfg", f"{above}/deep/cfg"), at("sec", "/no-such/secret")]
    hook = {"exec": {"command": ["sh", "-c", f"echo hook >{above}/told"]}}
    script = (
        f"until [ -s {above}/told ]; do sleep 0.1; done; cat {above}/told {above}/deep/cfg/key"
        f" /no-such/secret/key; ls {above}; echo said >/dev/termination-log"
    )
    done = every_site.run(
        [
            pod(
                sh(script, volumeMounts=mounts, lifecycle={"postStart": hook}),
                volumes=[
                    empty_dir("work"),
                    {"name": "cfg", "configMap": {"name": "cfg"}},
                    {"name": "sec", "secret": {"secretName": "sec"}},
                ],
            ),
            config_map("cfg", data={"key": "content\n"}),
            secret("sec", stringData={"key": "hidden\n"}),
        ]
    )
    assert lines(done) == ["hook", "content", "hidden", "deep", "told"], done
    end = done.state.containers["c0"].end
    assert end is not None
    assert (end.exit_code, end.message) == (0, "said\n")


# --- subPath -----------------------------------------------------------------------------------


def test_a_sub_path_is_a_folder_or_a_file_of_its_volume(every_site: Site) -> None:
    done = every_site.run(
        [
            pod(
                sh(
                    "ls -A /folder; cat /etc/one.conf; echo new >/made/here; ls -A /deep",
                    volumeMounts=[
                        at("work", "/folder", subPath="some/folder"),
                        at("cfg", "/etc/one.conf", subPath="one.conf"),
                        at("work", "/made", subPath="not/there/yet"),
                        at("work", "/deep", subPath="./some"),
                    ],
                ),
                sh("sleep 0.5; cat /all/not/there/yet/here", volumeMounts=[at("work", "/all")]),
                initContainers=[
                    init(
                        "mkdir -p /w/some/folder; touch /w/some/folder/x",
                        volumeMounts=[at("work", "/w")],
                    )
                ],
                volumes=[empty_dir("work"), {"name": "cfg", "configMap": {"name": "cfg"}}],
            ),
            config_map("cfg", data={"one.conf": "one\n", "two.conf": "two\n"}),
        ]
    )
    assert lines(done) == ["x", "one", "folder"]


def test_a_sub_path_that_is_made_has_the_rights_of_its_volume(site: Site) -> None:
    done = site.run(
        pod(
            sh("stat -c %a /made", volumeMounts=[at("work", "/made", subPath="a/b")]),
            volumes=[empty_dir("work")],
        )
    )
    assert done.log("c0") == "777\n"


def test_a_sub_path_can_be_made_of_variables(site: Site) -> None:
    done = site.run(
        pod(
            sh(
                "echo x >/logs/x",
                env=[{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                volumeMounts=[at("work", "/logs", subPathExpr="logs/$(POD) $$(POD)")],
            ),
            initContainers=[init("true")],
            volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "work"}}],
            name="train-0",
        ),
        with_volumes(site.config, claims={"work": Claim(str(open_folder(site.folder, "claim")))}),
    )
    assert done.ends()["c0"] == 0
    assert (site.folder / "claim" / "logs" / "train-0 $(POD)" / "x").exists()


@pytest.mark.parametrize("sub_path", ["link", "link/new", "link/new/er", "to-file/x", "up"])
def test_a_link_does_not_lead_a_sub_path_out_of_its_volume(site: Site, sub_path: str) -> None:
    outside, inside = open_folder(site.folder, "outside"), open_folder(site.folder, "inside")
    (inside / "link").symlink_to(outside)
    (inside / "up").symlink_to("..")
    (outside / "file").write_text("secret of the site\n")
    (inside / "to-file").symlink_to(outside / "file")
    done = site.run(
        pod(
            sh("ls -R /v; cat /v", volumeMounts=[at("v", "/v", subPath=sub_path)]),
            volumes=[{"name": "v", "hostPath": {"path": str(inside)}}],
        ),
        with_volumes(site.config, host_paths=(HostPath(str(inside)),)),
    )
    assert reason(done) == f"/v: subPath {sub_path} leads out of its volume"
    assert [path.name for path in outside.iterdir()] == ["file"]


def test_a_link_that_stays_inside_can_be_a_sub_path(site: Site) -> None:
    done = site.run(
        pod(
            sh("cat /v/x", volumeMounts=[at("work", "/v", subPath="current/data")]),
            initContainers=[
                init(
                    "cd /w; mkdir -p v1/data; echo one >v1/data/x; ln -s v1 current",
                    volumeMounts=[at("work", "/w")],
                )
            ],
            volumes=[empty_dir("work")],
        )
    )
    assert done.log("c0") == "one\n"


def test_a_mount_inside_a_volume_does_not_follow_a_link_out_of_it(site: Site) -> None:
    outside = open_folder(site.folder, "outside")
    done = site.run(
        pod(
            sh("true", volumeMounts=[at("work", "/w"), at("more", "/w/link/new")]),
            initContainers=[init(f"ln -s {outside} /w/link", volumeMounts=[at("work", "/w")])],
            volumes=[empty_dir("work"), empty_dir("more")],
        )
    )
    assert reason(done) == "/w/link/new leads out of the volume it is in"
    assert list(outside.iterdir()) == []


# --- the job's directory -----------------------------------------------------------------------


def test_nobody_else_can_look_into_a_job_and_nothing_secret_stays(
    every_site: Site, memory: Path
) -> None:
    mounts = [at("work", "/work"), at("s", "/s"), at("mem", "/mem")]
    running = every_site.start(
        [
            pod(
                sh(
                    "echo told >/mem/x; while [ ! -e /work/go ]; do sleep 0.1; done",
                    volumeMounts=mounts,
                ),
                sh("echo said; sleep 0.1"),
                volumes=[
                    empty_dir("work"),
                    {"name": "s", "secret": {"secretName": "s"}},
                    empty_dir("mem", medium="Memory"),
                ],
            ),
            secret("s", stringData={"word": "s3cr3t"}),
        ],
        with_volumes(every_site.config, memory=str(memory)),
    )
    directory = running.directory
    in_memory = memory / directory.name
    told = in_memory / "mem" / "x"
    running.until(lambda state: told.exists() and state.containers["c1"].end)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for path in (directory / "job.sh", directory / "run", in_memory):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    private = [
        directory / "secret" / "pod.sh",
        directory / "records",
        directory / "logs" / "c1.0.log",
    ]
    private += (directory / "spool").iterdir()
    for path in private:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    (directory / "scratch" / "work" / "go").touch()
    done = running.wait()
    assert done.ends() == {"c0": 0, "c1": 0}
    left = {path.name for path in directory.iterdir()}
    assert not left & {"secret", "run", "scratch"}
    assert list(memory.iterdir()) == []
    for path in directory.rglob("*"):
        assert not path.is_file() or b"s3cr3t" not in path.read_bytes(), path


def test_scratch_is_where_the_site_says_and_gone_at_the_end(site: Site) -> None:
    scratch = open_folder(site.folder, "scratch")
    scratch.chmod(0o1777)
    running = site.start(
        pod(
            sh(
                "touch /w/x; while [ ! -e /w/go ]; do sleep 0.1; done",
                volumeMounts=[at("work", "/w")],
            ),
            volumes=[empty_dir("work")],
        ),
        with_volumes(site.config, scratch=str(scratch)),
    )
    work = scratch / running.directory.name / "work"
    running.until(lambda state: "c0" in state.containers and (work / "x").exists())
    (work / "go").touch()
    assert running.wait().ends() == {"c0": 0}
    assert list(scratch.iterdir()) == []
