"""Entries below an allowed path that somebody exchanges for links while a pod starts."""

from __future__ import annotations

import ctypes
import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from templates.site.build_config import BuildConfig, Claim, Environment, HostPath
from tests.support.script_runner import Finished, Site, pod, put_program, sh

pytestmark = pytest.mark.security

PRIVATE = "secret of the site"
PROGRAMS = (
    *("realpath", "readlink", "stat", "mkdir", "mount", "unshare", "nsenter"),
    *("apptainer", "podman"),
)
# What the script calls for a pod's volumes. At one call that has to do with the folder, or with
# mounts as such, the entries are exchanged before it; and back after it, if that is wanted.
STAND_IN = """#!/bin/bash
exchange() {
    for name in entry file; do
        mv -T @data/$name @data/away && mv -T @data/$name-link @data/$name &&
            mv -T @data/away @data/$name-link
    done
}
program=${0##*/} chosen=
case $program$PWD$* in
*@data* | unshare* | nsenter* | apptainer* | podman*)
    echo "$program" >>@calls
    [ "$(wc -l <@calls)" != "$(cat @chosen)" ] || { chosen=1; exchange; }
    ;;
esac
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
# (What unshare starts is known by its process.)
case $chosen$(cat @after)$program in
1backunshare | stay* | back* | 1stay*) exec "$program" "$@" ;;
esac
"$program" "$@"
code=$?
exchange
exit $code
"""
# How a volume names an entry: the path, the type of a hostPath, where it is mounted, what shows it.
KINDS = {
    "folder": ("entry", "Directory", "/mnt", "cat /mnt/x"),
    "file": ("file", "File", "/mnt/file", "cat /mnt/file"),
    "made": ("entry/new/er", "DirectoryOrCreate", "/mnt", "ls /mnt; echo mine"),
    "made-file": ("entry/new", "FileOrCreate", "/mnt/file", "cat /mnt/file; echo mine"),
    "sub": ("entry", "", "/mnt", "cat /mnt/x"),
    "sub-file": ("file", "", "/mnt/file", "cat /mnt/file"),
    "sub-made": ("entry/new/er", "", "/mnt", "ls /mnt; echo mine"),
    "inside": ("", "", "/mnt", "ls /mnt/entry/mount/point; echo mine"),
    "workdir": ("", "", "/mnt", "ls; echo mine"),
}
CASES = [
    *(("folder", "stay"), ("folder", "back"), ("sub", "stay"), ("sub", "back")),
    *(("file", "stay"), ("made", "back"), ("made-file", "stay"), ("sub-file", "back")),
    *(("sub-made", "back"), ("inside", "stay"), ("workdir", "back")),
]


class Shared:
    """A folder that pods may write to, beside one that is none of theirs."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.data, self.outside = site.folder / "data", site.folder / "outside"
        self.calls, self.chosen, self.after = (
            site.folder / name for name in ("calls", "chosen", "after")
        )
        text = STAND_IN
        for name in ("data", "calls", "chosen", "after"):
            text = text.replace(f"@{name}", str(getattr(self, name)))
        for name in PROGRAMS:
            self.programs = put_program(site.folder, name, text)

    def fill(self) -> None:
        """Put everything into its first state."""
        for folder in (self.data, self.outside):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (self.data, self.data / "entry", self.outside):
            folder.mkdir()
            folder.chmod(0o777)
        (self.data / "entry" / "x").write_text("mine\n")
        (self.data / "file").write_text("mine\n")
        (self.outside / "x").write_text(f"{PRIVATE}\n")
        (self.data / "entry-link").symlink_to(self.outside)
        (self.data / "file-link").symlink_to(self.outside / "x")

    def config(self) -> BuildConfig:
        config = self.site.config
        return replace(
            config,
            environment=replace(config.environment, path=(self.programs,)),
            volumes=replace(
                config.volumes,
                host_paths=(HostPath(str(self.data)),),
                claims={"data": Claim(str(self.data))},
            ),
        )

    def run(self, kind: str, number: int, after: str) -> Finished:
        """Run a pod with a mount of that kind; before call NUMBER the entries are exchanged."""
        self.fill()
        self.calls.write_text("")
        self.calls.chmod(0o666)
        self.chosen.write_text(str(number))
        self.after.write_text(after)
        return self.site.run(self.pod(kind), self.config())

    def pod(self, kind: str) -> dict[str, Any]:
        """A pod whose one volume names an entry, and a command that shows it."""
        path, source, target, script = KINDS[kind]
        volume: dict[str, Any] = {"persistentVolumeClaim": {"claimName": "data"}}
        if source:
            volume = {"hostPath": {"path": f"{self.data}/{path}", "type": source}}
        mounts = [{"name": "v", "mountPath": target}]
        if path and not source:
            mounts[0]["subPath"] = path
        if kind == "inside":
            mounts.append({"name": "empty", "mountPath": "/mnt/entry/mount/point"})
        container = sh(script, volumeMounts=mounts)
        if kind == "workdir":
            container["workingDir"] = "/mnt/entry/work/dir"
        volumes = [{"name": "v", **volume}, {"name": "empty", "emptyDir": {}}]
        return pod(container, volumes=volumes)

    def check(self, done: Finished) -> bool:
        """Return whether the pod ran; nothing private came into it, and it made nothing outside."""
        said = "".join(path.read_text() for path in (done.directory / "logs").glob("*.log"))
        assert PRIVATE not in said + str(done.records), said
        assert [path.name for path in self.outside.iterdir()] == ["x"], said
        assert (self.outside / "x").read_text() == f"{PRIVATE}\n"
        if done.code == 0:
            assert said == "mine\n"
        return done.code == 0


def exchange_everywhere(site: Site, kind: str, after: str) -> None:
    """Every program that the script calls is a moment."""
    shared = Shared(site)
    undisturbed = shared.run(kind, 0, after)
    assert shared.check(undisturbed), undisturbed
    moments = len(shared.calls.read_text().splitlines())
    assert moments > 2
    for number in range(1, moments + 1):
        shared.check(shared.run(kind, number, after))


@pytest.mark.parametrize(("kind", "after"), CASES)
def test_an_entry_that_is_exchanged_at_any_moment_leads_nowhere(
    folder: Path, kind: str, after: str
) -> None:
    exchange_everywhere(Site("host", folder), kind, after)


@pytest.mark.parametrize(("kind", "after"), [*CASES[:4], ("sub-made", "back")])
def test_nor_does_it_into_a_container(container_site: Site, kind: str, after: str) -> None:
    exchange_everywhere(container_site, kind, after)


def exchange_for_ever(data: str) -> None:
    """What another pod with that folder can do as fast as it likes."""
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    names = [f"{data}/{name}".encode() for name in ("entry", "entry-link")]
    while not rename(-100, names[0], -100, names[1], 2):  # RENAME_EXCHANGE
        pass


@pytest.mark.parametrize("kind", ["folder", "sub", "sub-made"])
def test_an_entry_that_is_exchanged_all_the_time_leads_nowhere(site: Site, kind: str) -> None:
    shared = Shared(site)
    shared.fill()
    exchanger = multiprocessing.Process(target=exchange_for_ever, args=(str(shared.data),))
    exchanger.start()
    try:
        for _ in range(4):
            done = site.run(shared.pod(kind), replace(shared.config(), environment=Environment()))
            shared.check(done)
        assert exchanger.is_alive()
    finally:
        exchanger.kill()
        exchanger.join()


def test_the_container_is_the_same_as_one_without_such_a_volume(container_site: Site) -> None:
    shared = Shared(container_site)
    shared.fill()
    script = "id; umask; ls /proc/self/fd; cat /mnt/x; echo >/mnt/new"
    with_probe = {"exec": {"command": ["cat", "/mnt/x"]}, "periodSeconds": 1}
    manifest = shared.pod("sub")
    container = manifest["spec"]["containers"][0]
    container.update(sh(script), readinessProbe=with_probe)
    done = container_site.run(manifest, replace(shared.config(), environment=Environment()))
    container["volumeMounts"][0].pop("subPath")
    container.update(sh(script.replace("/mnt", "/mnt/entry")))
    plain = container_site.run(manifest, replace(shared.config(), environment=Environment()))
    assert done.log("c0") == plain.log("c0")
    assert done.code == 0


@pytest.mark.apptainer
@pytest.mark.parametrize("kind", ["folder", "sub-made"])
def test_without_user_namespaces_what_others_can_exchange_is_refused(
    folder: Path, kind: str
) -> None:
    shared = Shared(Site("apptainer", folder))
    words = "unshare: unshare failed: Operation not permitted"
    put_program(folder, "unshare", f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
    done = shared.run(kind, 0, "stay")
    end = done.state.containers["c0"].end
    assert end is not None
    assert end.exit_code == 128
    assert end.message.endswith(f"which takes user namespaces: {words}")
