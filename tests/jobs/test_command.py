"""What a container runs: the four cases of command and args, not one character of them changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from templates.common.errors import PodRejected
from tests.support.script_runner import ENTRY, Finished, Site, pod, sh

# Everything that means something to some shell, or to somebody who reads options.
HOSTILE = [
    "",
    " ",
    "two  words",
    "tab\there",
    "line\nbreak\n",
    "\r\n",
    "it's",
    'say "hi"',
    "back\\slash\\n",
    "`id`",
    "$(id)x",
    "$HOME ${HOME} $[1+1] $((1+1))",
    "$'\\n'",
    "*",
    "/*",
    "?",
    "[a-z]",
    "~",
    "{a,b}",
    "!x",
    "#",
    ";",
    "&& false",
    "| false",
    "> /tmp/never",
    "--",
    "-n",
    "--help",
    "-e",
    "%s%n",
    "a=b",
    "@file",
    "é🚀\u2028日本",
    "\x01\x7f",
    "''",
    '"',
    "'",
]


def output(done: Finished, container: str = "c0") -> bytes:
    """What a container wrote, to the byte."""
    return (done.directory / "logs" / f"{container}.0.log").read_bytes()


def words(done: Finished) -> list[str]:
    """What ``printf '%s\\0' ...`` wrote."""
    return output(done).decode().split("\0")[:-1]


def not_started(site: Site, *codes: int) -> tuple[int, ...]:
    """The codes of a command that could not start; Apptainer has only one for whatever fails."""
    return (255,) if site.runtime in ("apptainer", "singularity") else codes


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({}, "entry-point image-command"),
        ({"args": ["one", "two"]}, "entry-point one two"),
        ({"command": ["/bin/echo", "own"]}, "own"),
        ({"command": ["/bin/echo", "own"], "args": ["one", "two"]}, "own one two"),
    ],
    ids=["neither", "args", "command", "both"],
)
def test_command_and_args_replace_the_entrypoint_and_command_of_the_image(
    container_site: Site, container: dict[str, list[str]], said: str
) -> None:
    done = container_site.run(pod({"image": ENTRY, **container}))
    assert (done.ends(), done.log("c0")) == ({"c0": 0}, f"{said}\n")


def test_hostile_words_arrive_to_the_byte(every_site: Site) -> None:
    done = every_site.run(pod({"command": ["printf", "%s\\0", *HOSTILE], "args": HOSTILE}))
    assert words(done) == HOSTILE + HOSTILE
    assert done.ends() == {"c0": 0}


def test_hostile_args_reach_the_entrypoint_of_the_image_to_the_byte(container_site: Site) -> None:
    # echo of busybox takes options only at the very beginning, and that is the image's own word.
    done = container_site.run(pod({"image": ENTRY, "args": HOSTILE}))
    assert output(done).decode() == " ".join(["entry-point", *HOSTILE]) + "\n"


def test_references_are_expanded_as_kubernetes_does_and_by_nobody_else(site: Site) -> None:
    written = ["$(A)", "$$(A)", "$(B)", "$(NOPE)", "$A", "$$", "${A}", "x$(A)$(A)y", "$(C)"]
    env = [
        {"name": "A", "value": "a b"},
        {"name": "B", "value": "$$(A)"},
        {"name": "C", "value": "`id` $(A)"},
    ]
    done = site.run(pod({"command": ["printf", "%s\\0"], "args": written, "env": env}))
    assert words(done) == [
        "a b",
        "$(A)",
        "$(A)",
        "$(NOPE)",
        "$A",
        "$",
        "${A}",
        "xa ba by",
        "`id` a b",
    ]


def test_references_in_command_are_expanded_too(site: Site) -> None:
    env = [{"name": "TOOL", "value": "printf"}, {"name": "WORD", "value": "*"}]
    done = site.run(pod({"command": ["$(TOOL)", "<%s>", "$(WORD)"], "env": env}))
    assert done.log("c0") == "<*>"


def test_stdin_is_empty(every_site: Site) -> None:
    done = every_site.run(pod(sh("stat -L -c %t:%T /proc/self/fd/0; cat; echo end")))
    assert done.log("c0") == "1:3\nend\n"  # the device number of /dev/null


def test_a_command_starts_in_its_working_directory(every_site: Site) -> None:
    done = every_site.run(pod(sh("pwd", workingDir="/usr/bin"), sh("pwd")))
    assert (done.log("c0"), done.log("c1")) == ("/usr/bin\n", "/\n")


def test_a_working_directory_may_be_in_a_volume(site: Site) -> None:
    mount = {"name": "work", "mountPath": "/data/work"}
    make = {"name": "make", "image": "busybox:1.36", "volumeMounts": [mount]}
    done = site.run(
        pod(
            sh("pwd; cat there", workingDir="/data/work/a b", volumeMounts=[mount]),
            initContainers=[
                {**make, **sh("mkdir '/data/work/a b'; echo x >'/data/work/a b/there'")}
            ],
            volumes=[{"name": "work", "emptyDir": {}}],
        )
    )
    assert done.log("c0") == "/data/work/a b\nx\n"


def test_a_working_directory_that_a_volume_does_not_have_is_made(site: Site) -> None:
    mounts = [{"name": "work", "mountPath": "/data"}, {"name": "other", "mountPath": "/data/other"}]
    volumes: list[dict[str, Any]] = [{"name": mount["name"], "emptyDir": {}} for mount in mounts]
    done = site.run(
        pod(
            sh("pwd; ls -d /data/a/*; touch x", workingDir="/data/a/b c", volumeMounts=mounts),
            sh("pwd; touch x", workingDir="/data/other/d", volumeMounts=mounts),
            volumes=volumes,
        )
    )
    assert done.ends() == {"c0": 0, "c1": 0}
    assert (done.log("c0"), done.log("c1")) == ("/data/a/b c\n/data/a/b c\n", "/data/other/d\n")


def test_a_working_directory_that_leads_out_of_its_volume_is_not_made(
    site: Site, tmp_path: Path
) -> None:
    mounts = [{"name": "work", "mountPath": "/data"}]
    link = {"name": "link", "image": "busybox:1.36", "volumeMounts": mounts}
    made = tmp_path / "made"
    site.run(
        pod(
            sh("true", workingDir=f"/data/out/{made.name}", volumeMounts=mounts),
            initContainers=[{**link, **sh(f"ln -s {tmp_path} /data/out")}],
            volumes=[{"name": "work", "emptyDir": {}}],
        )
    )
    assert not made.exists()


def test_a_working_directory_that_is_not_there_ends_the_container_with_words(site: Site) -> None:
    done = site.run(pod(sh("echo never", workingDir="/no/such/place")))
    assert "never" not in done.log("c0")
    assert "/no/such/place" in done.log("c0")
    assert done.ends()["c0"] in not_started(site, 126, 128)


@pytest.mark.parametrize("command", ["/no/such/program", "no-such-program"])
def test_a_command_that_is_not_there_ends_the_container_with_words(
    every_site: Site, command: str
) -> None:
    done = every_site.run(pod({"command": [command, "x"]}))
    assert command in done.log("c0")
    assert done.ends()["c0"] in not_started(every_site, 127)
    assert done.state.containers["c0"].end.reason == "Error"


def test_a_file_that_is_no_program_ends_the_container_with_words(site: Site) -> None:
    done = site.run(pod({"command": ["/etc/passwd"]}))
    assert "ermission denied" in done.log("c0")
    assert done.ends()["c0"] in not_started(site, 126)


def test_the_exit_code_is_the_commands_own(every_site: Site) -> None:
    codes = [0, 1, 77, 127, 128, 255]
    done = every_site.run(pod(*[sh(f"exit {code}") for code in codes]))
    assert done.ends() == {f"c{index}": code for index, code in enumerate(codes)}
    assert done.code == 1  # the first that is not 0


def test_without_images_a_pod_must_name_a_command(folder: Path) -> None:
    with pytest.raises(PodRejected) as caught:
        Site("host", folder).start(pod({}))
    assert str(caught.value) == (
        "pod.spec containers[c0].command: must be given: the host runtime has no images"
    )
