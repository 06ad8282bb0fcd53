"""What a container finds in its environment: every value to the byte, and nothing of the site's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from templates.common.errors import PodRejected
from templates.pod.containers import LONGEST_VARIABLE
from tests.support.script_runner import (
    BUSYBOX,
    Finished,
    Running,
    Site,
    config_map,
    pod,
    secret,
    sh,
)

# Shows its environment as the kernel has it: no shell in between that drops or adds a variable.
SHOW = ["cat", "/proc/self/environ"]

VALUES = {
    "EMPTY": "",
    "SPACE": " ",
    "SPACES": "   ",
    "TABS": "\t\t",
    "QUOTES": "it's \"quoted\" ''",
    "NEWLINES": "\nfirst\n\nlast\n",
    "CARRIAGE": "a\r\nb\r",
    "BACKTICKS": "`id` `",
    "DOLLARS": "$ $$ $HOME ${HOME} $(id) $(nope $((1+1))",
    "BACKSLASH": "\\ \\n \\\\ \\",
    "GLOBS": "* ? [a-z] ~ {a,b}",
    "HASH": "# not a comment",
    "SEMICOLON": "; false && false | false > /tmp/never",
    "EQUALS": "=a=b=",
    "DASHES": "--help",
    "EMOJI": "🚀 é 日本 \u200b\u2028",
    "CONTROL": "\x01\x1b[31m\x7f",
    "JSON": '{"a": ["b", null], "c": "\\n"}',
    "LONG": "x" * 120 * 1024,
    "LONG_LINES": "0123456789\n" * 10 * 1024,
}

# Names that no shell can hold, and names that look like options or paths.
NAMES = [
    "with.dot",
    "with-dash",
    "1digit",
    "a b",
    "é",
    "-n",
    "--",
    "a/b",
    "%",
    "x[0]",
    "$(id)",
    "'",
]

# Names that bash, or something of ours, has its own idea of.
KEPT_BY_BASH = [
    *("UID", "EUID", "GID", "GROUPS", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_ENV", "BASH_VERSION"),
    *("BASH", "BASHPID", "IFS", "PS1", "PS4", "SHLVL", "PWD", "OLDPWD", "POSIXLY_CORRECT", "ENV"),
    *("FUNCNAME", "DIRSTACK", "RANDOM", "SECONDS", "LINENO", "HISTCMD", "EPOCHREALTIME", "OPTIND"),
    *(
        "LC_ALL",
        "LANG",
        "LANGUAGE",
        "LC_CTYPE",
        "TZ",
        "HOSTTYPE",
        "MACHTYPE",
        "PIPESTATUS",
        "REPLY",
    ),
    *("CDPATH", "GLOBIGNORE", "TMPDIR", "TERM", "USER", "LOGNAME", "COLUMNS", "PERL5LIB"),
]

# Names of the script's own variables and functions.
SCRIPTS_OWN = [
    *("odd", "kept", "env", "command", "args", "prefix", "entry", "name", "launcher", "options"),
    *("i", "image", "file", "sources", "targets", "modes", "index", "restarts", "stop", "caught"),
    *("JOB", "POD", "DIR", "RUN", "RUNTIME", "OPTIONS", "CONTAINERS", "CACHE", "SCRATCH", "log"),
    *("record", "become", "workdir", "isolated", "join", "namespace", "problem", "entrypoint"),
]


def listed(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in values.items()]


def environment_of(done: Finished, container: str = "c0") -> dict[str, str]:
    entries = (done.directory / "logs" / f"{container}.0.log").read_bytes().split(b"\0")
    assert entries.pop() == b"", done.log(container)[-500:]
    pairs = [entry.decode().partition("=") for entry in entries]
    names = [name for name, _, _ in pairs]
    assert len(names) == len(set(names)), f"a variable is there twice: {sorted(names)}"
    return {name: value for name, _, value in pairs}


def shown(site: Site, values: dict[str, str]) -> dict[str, str]:
    """Those of the variables that arrive, with what arrives."""
    done = site.run(pod({"command": SHOW, "env": listed(values)}))
    found = environment_of(done)
    return {name: found[name] for name in values if name in found}


def test_values_arrive_to_the_byte(any_site: Site) -> None:
    assert shown(any_site, VALUES) == VALUES


def test_the_longest_value_that_the_kernel_takes_arrives(any_site: Site) -> None:
    values = {"MAX": "x" * (LONGEST_VARIABLE - len("MAX="))}
    assert shown(any_site, values) == values


def test_a_longer_value_is_refused_in_words(site: Site) -> None:
    values = {"MAX": "x" * (LONGEST_VARIABLE - len("MAX=") + 1)}
    with pytest.raises(PodRejected) as caught:
        site.start(pod({"command": SHOW, "env": listed(values)}))
    assert str(caught.value).endswith(
        "env: variable MAX takes 131056 bytes with its name; "
        "more than 131055 cannot be handed to a program"
    )


def test_names_that_no_shell_can_hold_arrive(any_site: Site) -> None:
    values = {name: f"value of {name}" for name in NAMES}
    assert shown(any_site, values) == values


def test_names_that_bash_keeps_for_itself_arrive(any_site: Site) -> None:
    values = {name: f"value of {name}" for name in sorted(set(KEPT_BY_BASH))}
    assert shown(any_site, values) == values


def test_names_of_the_scripts_own_variables_arrive(any_site: Site) -> None:
    values = {name: f"value of {name}" for name in SCRIPTS_OWN}
    assert shown(any_site, values) == values


@pytest.mark.parametrize("name", ["odd", "launcher", "prefix", "DIR"])
def test_one_name_of_the_scripts_own_changes_nothing_else(site: Site, name: str) -> None:
    values = {"FIRST": "1", name: "false", "LAST": "2"}
    assert shown(site, values) == values


def test_odd_names_can_have_values_of_any_kind(any_site: Site) -> None:
    values = {f"odd.{name}": value for name, value in VALUES.items() if not name.startswith("LONG")}
    assert shown(any_site, values) == values


def test_path_and_home_are_the_pods(any_site: Site) -> None:
    values = {"PATH": "/opt/mine:/usr/bin:/bin", "HOME": "/opt/home"}
    assert shown(any_site, values) == values


def test_a_command_is_looked_up_on_the_pods_path(site: Site) -> None:
    mount = {"name": "tools", "mountPath": "/opt/tools"}
    tools = {"name": "tools", "configMap": {"name": "tools", "defaultMode": 0o755}}
    done = site.run(
        [
            pod(
                {
                    "command": ["my-tool", "x"],
                    "env": listed({"PATH": "/opt/tools:/usr/bin:/bin"}),
                    "volumeMounts": [mount],
                },
                volumes=[tools],
            ),
            config_map("tools", data={"my-tool": '#!/bin/sh\necho "mine $1"\n'}),
        ]
    )
    assert done.log("c0") == "mine x\n"


def test_hostname_is_the_pods_unless_it_says_otherwise(any_site: Site) -> None:
    show = {"command": SHOW}
    named = {"command": SHOW, "env": listed({"HOSTNAME": "own"})}
    done = any_site.run(pod(show, named, name="train-0"))
    assert environment_of(done)["HOSTNAME"] == "train-0"
    assert environment_of(done, "c1")["HOSTNAME"] == "own"
    done = any_site.run(pod(show, hostname="worker"))
    assert environment_of(done)["HOSTNAME"] == "worker"


def test_the_image_brings_variables_that_the_pod_can_override(container_site: Site) -> None:
    shows = {"command": SHOW}
    own = {"command": SHOW, "env": listed({"FROM_IMAGE": "no"})}
    done = container_site.run(pod(shows, own))
    assert environment_of(done)["FROM_IMAGE"] == "yes"
    assert environment_of(done, "c1")["FROM_IMAGE"] == "no"


BATCH = {
    "BATCH_TOKEN": "batch-secret-value",
    "LD_LIBRARY_PATH": "/batch-secret-value",
    "PYTHONPATH": "/batch-secret-value",
    "XDG_SESSION_ID": "batch-secret-value",
    "lower": "batch-secret-value",
    "name": "batch-secret-value",
    "JOB": "batch-secret-value",
    "command": "batch-secret-value",
    "pid": "batch-secret-value",
    "text": "batch-secret-value",
    "with.dot": "batch-secret-value",
    "IFS": "batch-secret-value",
    "LANG": "batch-secret-value.UTF-8",
    "APPTAINERENV_LEAK": "batch-secret-value",
    "SINGULARITYENV_LEAK": "batch-secret-value",
    "APPTAINER_BIND": "/etc/batch-secret-value",
    "SLURM_JOB_ID": "4711",
    "SLURM_NODELIST": "n[1-2]\nand `more` of 'it'",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "_CONDOR_SLOT": "slot1",
}


def test_nothing_of_the_batch_environment_leaks_but_what_the_site_keeps(any_site: Site) -> None:
    done = any_site.run(pod({"command": SHOW}), environment=BATCH)
    found = environment_of(done)
    kept = {n: v for n, v in BATCH.items() if n.startswith(("SLURM_", "CUDA_", "_CONDOR_"))}
    assert {name: found.get(name) for name in kept} == kept
    assert [n for n, v in found.items() if "batch-secret" in v] == []
    assert "LEAK" not in found


def test_a_site_decides_which_variables_it_keeps(any_site: Site) -> None:
    config = any_site.config
    config = replace(config, environment=replace(config.environment, keep=("BATCH_*", "lower")))
    done = any_site.run(pod({"command": SHOW}), config, environment=BATCH)
    found = environment_of(done)
    assert (found.get("BATCH_TOKEN"), found.get("lower")) == ("batch-secret-value",) * 2
    assert "SLURM_JOB_ID" not in found
    config = replace(config, environment=replace(config.environment, keep=()))
    found = environment_of(any_site.run(pod({"command": SHOW}), config, environment=BATCH))
    assert not set(found.items()) & set(BATCH.items())
    assert "batch-secret" not in str(found)


def test_the_pod_wins_over_the_site_and_the_site_over_the_batch_system(any_site: Site) -> None:
    config = any_site.config
    given = {"SLURM_A": "site", "SLURM_B": "site", "http_proxy": "http://proxy:3128"}
    config = replace(config, environment=replace(config.environment, set=given))
    done = any_site.run(
        pod({"command": SHOW, "env": listed({"SLURM_B": "pod", "with.dot": "pod"})}),
        config,
        environment={"SLURM_A": "batch", "SLURM_B": "batch", "SLURM_C": "batch"},
    )
    found = environment_of(done)
    names = ("SLURM_A", "SLURM_B", "SLURM_C", "http_proxy", "with.dot")
    wanted = ["site", "pod", "batch", "http://proxy:3128", "pod"]
    assert [found.get(name) for name in names] == wanted


def test_exported_functions_of_the_batch_environment_do_no_harm(any_site: Site) -> None:
    functions = {
        f"BASH_FUNC_{name}%%": '() {  echo "harm by a function" >&2; false\n}'
        for name in ("module", "which", "ml", "_lmod")
    }
    done = any_site.run(pod({"command": SHOW}), environment=functions)
    found = environment_of(done)
    assert [name for name in found if name.startswith("BASH_FUNC")] == []
    assert "harm" not in done.output


def test_variables_come_from_config_maps_secrets_fields_and_resources(site: Site) -> None:
    main = {
        "command": SHOW,
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
        "envFrom": [
            {"prefix": "P_", "configMapRef": {"name": "cfg"}},
            {"secretRef": {"name": "none", "optional": True}},
        ],
        "env": [
            {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "pw", "key": "word"}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
            {"name": "ALL", "value": "$(P_key.x):$(PW):$(MEM):$$(PW)"},
            {"name": "P_over", "value": "own"},
        ],
    }
    done = site.run(
        [
            pod(main, name="train-0"),
            config_map("cfg", data={"key.x": "from\nmap", "over": "ridden"}),
            secret("pw", stringData={"word": "geheim'$"}),
        ]
    )
    found = environment_of(done)
    assert found["POD"] == "train-0"
    assert found["ALL"] == "from\nmap:geheim'$:1073741824:$(PW)"
    assert (found["P_over"], found["P_key.x"]) == ("own", "from\nmap")


def test_containers_do_not_see_each_others_variables(site: Site) -> None:
    first = {"command": SHOW, "env": listed({"FIRST": "1", "first.odd": "1"})}
    init = {"name": "init", "image": BUSYBOX, "command": ["true"], "env": listed({"INIT": "1"})}
    done = site.run(pod(first, {"command": SHOW}, initContainers=[init]))
    assert not {"FIRST", "first.odd", "INIT"} & set(environment_of(done, "c1"))
    assert "INIT" not in environment_of(done)


def command_lines() -> dict[int, bytes]:
    """What every process of this machine has been called with."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[int(entry.parent.name)] = entry.read_bytes()
        except OSError:
            continue  # it has just ended
    return found


SECRETS = {
    "PASSWORD": "s3cr3t-plain",
    "password.dotted": "s3cr3t-odd",
    "SHLVL": "s3cr3t-of-bash",
    "CERTIFICATE": "-----BEGIN-----\ns3cr3t-lines\n",
    "BIG": "s3cr3t-big " * 4000,
}


def started_with_secrets(site: Site) -> Running:
    mount = {"name": "pw", "mountPath": "/etc/pw"}
    return site.start(
        [
            pod(
                sh(
                    "while [ ! -e /work/go ]; do sleep 0.1; done; cat /proc/$$$$/environ; true",
                    env=listed(SECRETS),
                    volumeMounts=[mount, {"name": "work", "mountPath": "/work"}],
                ),
                sh("echo >/work/ready", volumeMounts=[{"name": "work", "mountPath": "/work"}]),
                volumes=[
                    {"name": "pw", "secret": {"secretName": "pw"}},
                    {"name": "work", "emptyDir": {}},
                ],
            ),
            secret("pw", stringData={"word": "s3cr3t-file"}),
        ]
    )


def test_no_secret_is_in_an_argument_of_a_process_or_in_the_script(any_site: Site) -> None:
    running = started_with_secrets(any_site)
    running.until(lambda state: "c1" in state.containers and state.containers["c1"].end)
    work = running.directory / "scratch" / "work"
    assert (work / "ready").exists()
    told = command_lines()
    (work / "go").touch()
    done = running.wait()
    assert environment_of(done).items() >= SECRETS.items()  # it did have them
    assert len(told) > 3
    assert {pid: line for pid, line in told.items() if b"s3cr3t" in line} == {}
    for path in done.directory.rglob("*"):
        if path.is_file() and path.name != "c0.0.log":
            assert b"s3cr3t" not in path.read_bytes(), path
