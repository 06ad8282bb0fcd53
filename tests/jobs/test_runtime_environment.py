"""What a container runtime is started with: nothing of a pod's variables, whatever they are.

Behind a shell script that notes its environment and its words, as sites have them, and then becomes
the true runtime, or a stand-in that does nothing where there is none.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from templates.common.errors import PodRejected
from templates.pod.create_request import read_create_request
from templates.site.build_config import RUNTIMES, BuildConfig, Runtime
from templates.translation.build import build
from tests.support.runtime_names import names
from tests.support.script_runner import Finished, Site, manifests, pod

pytestmark = pytest.mark.security

SHOW = ["/bin/cat", "/proc/self/environ"]
ROOM = 1_400_000  # bytes of variables that a container may have

# What Apptainer or its shell sets after all others; PROMPT_COMMAND it would change.
KEPT_BY_APPTAINER = {
    *(f"{name}_{fact}" for name in ("APPTAINER", "SINGULARITY") for fact in ("NAME", "CONTAINER")),
    *("APPTAINER_ENVIRONMENT", "SINGULARITY_ENVIRONMENT", "PROMPT_COMMAND", "e", "key"),
    *("__script__", "__exported_env__", "__apptainer_cmd__", "SING_USER_DEFINED_PATH"),
    *(
        "BASH_FUNC_x",
        "BASH_FUNC_",
        "BASH_FUNC_apptainer%%",
        "APPTAINERENV_a.b",
        "SINGULARITYENV_$(id)",
    ),
}
# Where a library, a command or a file is named, a long value is as good as a short one.
WORST = [
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV", "PATH", "HOME", "IFS", "PS4"),
    *(
        "SHELLOPTS",
        "APPTAINER_BIND",
        "SINGULARITY_BIND",
        "CONTAINERS_CONF",
        "GODEBUG",
        "GCONV_PATH",
    ),
    *(
        "XDG_CONFIG_HOME",
        "XDG_RUNTIME_DIR",
        "TMPDIR",
        "_OCI_STARTPIPE",
        "GLIBC_TUNABLES",
        "PERL5OPT",
    ),
    *("UID", "EUID", "GID"),
]

ODD = {
    "with.dot": "x\r\n'",
    "-n": "$(touch F)",
    "a b": "\n",
    "x[0]": "",
    "$(touch F)": "x",
    "#": " #\r",
    "a\nb": "\n",
    "é": "é",
}
# What no shell can export, or makes read-only unless it finds it: nobody else reads these.
UNREAD = {f"{name}={value}".encode() for name, value in ODD.items()} | {b"UID=", b"EUID=", b"GID="}

# What podman is told of a variable: its name. (What it pulls depends on who comes first.)
OF_PODMAN = re.compile(
    r"--pull=\w+|--env-merge=(?:\w|\\.)+=\"\$\{INTERLINK_VALUE_\d+\}\"|--unsetenv=INTERLINK_VALUE_\d+",
    re.DOTALL,
).fullmatch


class Kind(NamedTuple):
    """A kind of value, and the names that are tried with it."""

    value: str  # F stands for a file that nothing may make
    names: list[str]


NAMES = names()
KINDS = {
    "plain": Kind("/mnt/x", NAMES),
    "empty": Kind("", NAMES),
    "blank": Kind(" ", NAMES),
    "carriage return": Kind("/:/x,\r", NAMES),
    "carriage return and line": Kind("/mnt/x:\r\n\r", NAMES),
    "lines": Kind("\n$(touch F)\n#\n", NAMES),
    "command": Kind("$(touch F)`touch F`;touch F", NAMES),
    "quotes": Kind("'\"\\'$'\\r'${HOME}%s\\", NAMES),
    "function": Kind("() { :; }; touch F", NAMES),
    "bytes": Kind("\x01\x1b\x7f\x80\xff\u2028\ufeff🚀", NAMES),
    "30,100 characters": Kind("/mnt/x:" + ":" * 30_093, WORST),
    "65,536 characters": Kind("x" * 65_536, WORST[1:]),
    "100 KB": Kind("/mnt/x:" + "é" * 50_000, WORST),
    "100 KB of lines": Kind("/mnt/x\r\n" * 12_500, WORST[: len(WORST) // 2]),
    "more of them": Kind("/mnt/x\r\n" * 12_500, WORST[len(WORST) // 2 :]),
}


class Noting:
    """A site whose runtime notes what it is started with."""

    def __init__(self, runtime: str, real: bool, folder: Path) -> None:
        self.runtime, self.real, self.folder = runtime, real, folder
        self.site = Site(runtime, folder)
        self.site.inside = real
        self.trap = folder / "trap"
        (folder / "seen").mkdir()
        for place in (folder, folder / "seen"):
            place.chmod(0o1777)
        program = folder / runtime
        become = f'exec /usr/bin/{runtime} "$@"' if real else '[ $1 != pull ] || : >"$3"'
        program.write_text(
            "#!/bin/bash\n"
            'case " $* " in *" run "* | *" exec "* | *" start "*)\n'
            f"seen=$(mktemp -d {folder}/seen/XXXXXX)\n"
            'cp /proc/$$/environ "$seen/environ"; printf \'%s\\0\' "$@" >"$seen/words" ;; esac\n'
            f"{become}\n"
        )
        program.chmod(0o755)

    @property
    def config(self) -> BuildConfig:
        config = self.site.config
        return replace(
            config, runtime=replace(config.runtime, executable=str(self.folder / self.runtime))
        )

    def run(self, variables: list[dict[str, str]]) -> Finished:
        """A container without variables, and one with each of these."""
        containers = [
            {"command": SHOW, "env": [{"name": n, "value": v} for n, v in env.items()]}
            for env in ({}, *variables)
        ]
        body = pod(*containers)
        body["metadata"].update(namespace="team-a", uid="6dab0f0a-57a4-4c6f-9c1e-0d3f9a1b2c3d")
        request = json.dumps({"pod": body}).encode()
        done = self.site.run(read_create_request(request), self.config)
        assert set(done.ends().values()) == {0}, [done.log(name) for name in done.ends()]
        assert len(done.ends()) == len(containers)
        assert not self.trap.exists(), "something of the pod ran on the node"
        return done

    def check(self, count: int) -> None:
        """That no start differs from that without variables in what the runtime could read."""
        seen = list((self.folder / "seen").iterdir())
        assert len(seen) == count
        environments = [set((place / "environ").read_bytes().split(b"\0")) for place in seen]
        found = set.union(*environments) - set.intersection(*environments)
        assert found - UNREAD == set()
        words = [set(self.words(place)) for place in seen]
        assert set.union(*words) - set.intersection(*words) == set()

    def words(self, place: Path) -> tuple[str, ...]:
        """The words of a start, without numbers, and without what is podman's for odd variables."""
        words = (place / "words").read_text().split("\0")
        if words[0] == "--module":
            assert re.fullmatch(r"/.*/secret/env-\d+\.conf", words[1])
            words = words[2:]
        return tuple(re.sub(r"\d+", "N", word) for word in words if not OF_PODMAN(word))


@pytest.fixture(
    params=[
        ("apptainer", False),
        ("podman", False),
        pytest.param(("apptainer", True), marks=pytest.mark.apptainer),
        pytest.param(("singularity", True), marks=pytest.mark.apptainer),
        pytest.param(("podman", True), marks=pytest.mark.podman),
    ],
    ids=lambda param: f"{param[0]}-{'real' if param[1] else 'stand-in'}",
)
def noting(request: pytest.FixtureRequest, folder: Path) -> Noting:
    """Each runtime, as a stand-in and as it is."""
    return Noting(*request.param, folder)


def split(env: dict[str, str]) -> list[dict[str, str]]:
    """As few environments as have room for all."""
    parts, left = [{}], ROOM
    for name, value in env.items():
        left -= len(f"{name}={value}".encode()) + 1
        if left < 0:
            parts, left = [*parts, {}], ROOM - len(value.encode())
        parts[-1][name] = value
    return parts


def arrived(noting: Noting, done: Finished, variables: list[dict[str, str]]) -> None:
    """That each container has found its variables, to the byte."""
    for index, env in enumerate(variables, start=1):
        log = (done.directory / "logs" / f"c{index}.0.log").read_bytes()
        # A few make the C library of the command itself say something first.
        first, *entries = log.split(b"\0")
        found = {entry.partition(b"=")[0].decode() for entry in entries}
        if noting.runtime != "podman" and env.get("LD_LIBRARY_PATH"):
            env = {**env, "LD_LIBRARY_PATH": env["LD_LIBRARY_PATH"] + ":/.singularity.d/libs"}
        wrong = {n for n, v in env.items() if f"{n}={v}".encode() not in entries}
        wrong = {n for n in wrong if not first.endswith(f"{n}={env[n]}".encode())}
        if noting.runtime != "podman":
            # Of those that it has itself Apptainer takes away the empty ones, and PS1 it must have.
            wrong = {n for n in wrong if env[n] or (n in found and n != "PS1")}
        assert wrong == set()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_the_variables_is_where_a_runtime_could_read_it(
    noting: Noting, kind: str
) -> None:
    value, names = KINDS[kind]
    value = value.replace("F", str(noting.trap))
    env = dict.fromkeys(names, value)
    if noting.runtime != "podman":
        env = {name: value for name, value in env.items() if name not in KEPT_BY_APPTAINER}
    done = noting.run(split(env))
    noting.check(1 + len(split(env)))
    if noting.real:
        arrived(noting, done, split(env))


@pytest.mark.parametrize("runtime", ["apptainer", "singularity", "podman"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_apptainer_sets_itself_is_refused_whatever_its_value(runtime: str, kind: str) -> None:
    config = BuildConfig(runtime=Runtime(name=runtime))
    for name in sorted(KEPT_BY_APPTAINER):
        env = [{"name": name, "value": KINDS[kind].value.replace("$", "$$")}]
        own = manifests(pod({"command": SHOW, "env": env}))
        if runtime == "podman":
            build(own, config)
            continue
        with pytest.raises(PodRejected) as caught:
            build(own, config)
        field = "pod.spec containers[c0].env"
        wanted = f"{field}: {runtime} keeps {name!r} for itself: give it another name"
        assert str(caught.value) == wanted


def test_names_that_are_none_for_a_shell_arrive_and_act_nowhere(noting: Noting) -> None:
    done = noting.run([ODD, {"A": "1"}])
    noting.check(3)
    if noting.real:
        arrived(noting, done, [ODD, {"A": "1"}])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_text_that_is_not_utf_8_is_refused(runtime: str) -> None:
    env = [{"name": "LD_PRELOAD", "value": "\ud800"}]
    body = {"pod": pod({"command": SHOW, "env": env})}
    with pytest.raises(PodRejected):
        build(read_create_request(json.dumps(body).encode()), BuildConfig(runtime=Runtime(runtime)))
