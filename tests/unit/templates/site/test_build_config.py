"""The build configuration: its files, its form on the wire, its sample and its documentation."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from templates.common.errors import ConfigError
from templates.site.build_config import (
    ON_THE_NODE,
    Apptainer,
    BuildConfig,
    Claim,
    Environment,
    HostPath,
    Images,
    KubernetesRuntime,
    NfsExport,
    PodmanRuntime,
    PodResources,
    Rules,
    Runtime,
    Script,
    Volumes,
)
from templates.site.file import Key, keys, load, sample
from templates.site.legacy import REFUSED, UNDERSTOOD
from templates.site.schema import from_json, to_json
from tests.house.test_docs import default_of

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "build-config.md"

EVERYTHING = BuildConfig(
    runtime=Runtime(
        *("podman", "/usr/bin/podman", ("--network", "host", "--annotation=a=b c"), "never", "1Gi")
    ),
    apptainer=Apptainer(True, True, True, True, True, False, True, True, False, "none"),
    podman=PodmanRuntime("pasta"),
    images=Images("r.example/", "/images", "/ready", "/cvmfs", "/shared/cache", 2, 3, 0, 4),
    volumes=Volumes(
        scratch="/scratch",
        memory="/run/shm",
        host_paths=(HostPath("/data"), HostPath("/cvmfs", True)),
        claims={"home": Claim("/home/$namespace/$claim"), "ns/set": Claim("/set", True)},
        nfs=(NfsExport("nfs.example.org", "/projects", "/net/projects", True),),
    ),
    environment=Environment(
        {"https_proxy": "http://p:1", "LINES": "a\nb"}, ("A_*",), ("/opt/bin",)
    ),
    kubernetes=KubernetesRuntime(
        {"a": "b"}, ("k=v:NoSchedule",), "rc", "pc", "sa", ("ps",), "lq", {"ns/home": "there"}
    ),
    script=Script("/opt/bash", "module load x\n\tcd /\n", "sync", "off", 1, 2, True),
    defaults=PodResources("500m", "2Gi", 0, 60),
    limits=PodResources("64", "1.5Ti", 8, 3600),
    rules=Rules(True, ("flags", "mpi-*"), ("pre-exec",)),
)


def complaint(text: str, name: str = "build.yaml") -> str:
    with pytest.raises(ConfigError) as caught:
        load(text, name)
    line = str(caught.value)
    assert "\n" not in line
    return line


def config_of(sections: dict[str, Any]) -> BuildConfig:
    return load(yaml.safe_dump(sections), "build.yaml")


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["build.yaml", "build.toml", "build.conf", "build.cfg", "x"])
@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "\n\n"])
def test_an_empty_file_gives_the_defaults(name: str, text: str) -> None:
    assert load(text, name) == BuildConfig()


def test_yaml_sets_keys_and_leaves_the_others() -> None:
    config = load("images:\n  cache: /shared\nlimits: {gpus: 2}\n", "build.yaml")
    assert config == BuildConfig(images=Images(cache="/shared"), limits=PodResources(gpus=2))


@pytest.mark.parametrize("name", ["build.toml", "build.conf", "build.cfg", "build.yaml", "/etc/x"])
def test_toml_is_read_by_its_name_or_because_it_is_no_yaml(name: str) -> None:
    text = '[images]\ncache = "/shared"\n\n[[volumes.host_paths]]\npath = "/data"\n'
    expected = BuildConfig(
        images=Images(cache="/shared"), volumes=Volumes(host_paths=(HostPath("/data"),))
    )
    assert load(text, name) == expected


def test_a_single_line_of_toml_is_not_taken_for_yaml_text() -> None:
    assert load('images.cache = "/shared"', "build").images.cache == "/shared"


def test_a_default_that_is_not_given_stays_beside_one_that_is() -> None:
    config = load("defaults: {memory: 4Gi}", "build.yaml")
    assert config.defaults == PodResources(cpu="1", memory="4Gi")
    assert load("defaults: {cpu: null}", "build.yaml").defaults == PodResources(memory="1Gi")


def test_a_section_without_keys_is_like_none() -> None:
    assert load("images:\n  # cache: /shared\nvolumes: {}\n", "build.yaml") == BuildConfig()


def test_off_is_a_word_and_numbers_are_decimal() -> None:
    config = load("script: {cgroups: off}\ndefaults: {wall_time_s: 90}", "build.yaml")
    assert (config.script.cgroups, config.defaults.wall_time_s) == ("off", 90)


def test_anchors_and_merge_keys_are_yaml_as_usual() -> None:
    text = "defaults: &some {cpu: 2, memory: 1Gi}\nlimits: {<<: *some, cpu: 8}\n"
    assert load(text, "build.yaml").limits == PodResources(cpu="8", memory="1Gi")


@pytest.mark.parametrize(("written", "kept"), [("4", "4"), ("0.5", "0.5"), ("'500m'", "500m")])
def test_quantities_need_no_quotes(written: str, kept: str) -> None:
    assert load(f"limits: {{cpu: {written}}}", "build.yaml").limits.cpu == kept


@pytest.mark.parametrize("path", ["/data", "/data/", "//data", "/./data/."])
def test_paths_are_kept_in_one_form(path: str) -> None:
    assert config_of({"volumes": {"scratch": path}}).volumes.scratch == "/data"


@pytest.mark.parametrize("path", ["/x", "/x/$namespace/$claim", "/x/${pod}_$uid"])
def test_the_path_of_a_claim_may_hold_variables(path: str) -> None:
    claims = config_of({"volumes": {"claims": {"team/home": {"path": path}}}}).volumes.claims
    assert claims == {"team/home": Claim(path)}


def test_every_key_can_be_set() -> None:
    assert config_of(to_json(EVERYTHING)) == EVERYTHING
    for before, after in zip(keys_of(BuildConfig()), keys_of(EVERYTHING)):
        assert before != after


def keys_of(config: BuildConfig) -> list[tuple[str, str, object]]:
    parts = [(part.name, getattr(config, part.name)) for part in dataclasses.fields(config)]
    return [(s, k.name, getattr(v, k.name)) for s, v in parts for k in dataclasses.fields(v)]


# --- mistakes in files --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("images: {cahce: /x}", "images.cahce: unknown key (did you mean cache?)"),
        ("imags: {cache: /x}", "imags: unknown key (did you mean images?)"),
        (
            "runtime: {zzz: 1}",
            "runtime.zzz: unknown key (known here: name, executable, options, gpu, least_memory)",
        ),
        (
            "runtime: {1: 2}",
            "runtime.1: unknown key (known here: name, executable, options, gpu, least_memory)",
        ),
        (
            "runtime: {name: docker}",
            "runtime.name: must be one of apptainer, singularity, podman, host, kubernetes",
        ),
        (
            "runtime: {name: [host]}",
            "runtime.name: must be one of apptainer, singularity, podman, host, kubernetes",
        ),
        ("images: {cache: 5}", "images.cache: must be text, not a number"),
        ("images: {cache: 1.5}", "images.cache: must be text, not a fraction"),
        ("images: {cache: true}", "images.cache: must be text, not a boolean"),
        ("images: {cache: }", "images.cache: must not be empty"),
        ("images: {cache: {}}", "images.cache: must be text, not a mapping"),
        ("images: {cache: relative}", "images.cache: must be an absolute path"),
        ("images: {cache: ~/x}", "images.cache: must be an absolute path"),
        ("images: {cache: '/a:b'}", "images.cache: must not hold a comma or a colon"),
        ("images: {cache: '/a,b'}", "images.cache: must not hold a comma or a colon"),
        ("images: {cache: /a/../b}", "images.cache: must not hold .."),
        (
            "images: {cache: /$HOME}",
            "images.cache: must not hold $: no variables are filled in here",
        ),
        ('images: {cache: "/a\\nb"}', "images.cache: must be one line without control characters"),
        ('images: {cache: "/a\\0b"}', "images.cache: must be one line without control characters"),
        ('images: {cache: "/a\\uD800"}', "images.cache: must be valid Unicode"),
        ("images: {root: images}", "images.root: must be an absolute path"),
        ("images: {root: 'docker://a b'}", "images.root: must not hold white space"),
        ("images: {prefix: 'a b'}", "images.prefix: must not hold white space"),
        ("images: {pull_attempts: 0}", "images.pull_attempts: must be from 1 to 2147483647"),
        ("images: {pull_attempts: -1}", "images.pull_attempts: must be from 1 to 2147483647"),
        ("images: {lock_stale_s: 3000000000}", "images.lock_stale_s: must be from 1 to 2147483647"),
        (
            "images: {pull_attempts: 1.5}",
            "images.pull_attempts: must be a whole number, not a fraction",
        ),
        (
            "images: {pull_attempts: 5.0}",
            "images.pull_attempts: must be a whole number, not a fraction",
        ),
        ("images: {pull_attempts: '5'}", "images.pull_attempts: must be a whole number, not text"),
        ("images: {pull_attempts: 010}", "images.pull_attempts: must be a whole number, not text"),
        ("images: {pull_attempts: yes}", "images.pull_attempts: must be a whole number, not text"),
        (
            "images: {pull_attempts: true}",
            "images.pull_attempts: must be a whole number, not a boolean",
        ),
        ("apptainer: {userns: yes}", "apptainer.userns: must be true or false, not text"),
        ("apptainer: {userns: 1}", "apptainer.userns: must be true or false, not a number"),
        ("runtime: {options: --nv}", "runtime.options: must be a list, not text"),
        ("runtime: {options: {a: b}}", "runtime.options: must be a list, not a mapping"),
        ("runtime: {options: [--nv, 5]}", "runtime.options[1]: must be text, not a number"),
        ("runtime: {options: ['']}", "runtime.options[0]: must not be empty"),
        (
            'runtime: {options: ["a\\nb"]}',
            "runtime.options[0]: must be one line without control characters",
        ),
        ("volumes: {host_paths: [/data]}", "volumes.host_paths[0]: must be a mapping, not text"),
        ("volumes: {host_paths: [{}]}", "volumes.host_paths[0].path: is missing"),
        (
            "volumes: {host_paths: [{path: /a}, {path: ''}]}",
            "volumes.host_paths[1].path: must be an absolute path",
        ),
        (
            "volumes: {host_paths: [{path: /a, readonly: true}]}",
            "volumes.host_paths[0].readonly: unknown key (did you mean read_only?)",
        ),
        ("volumes: {memory: ''}", "volumes.memory: must be an absolute path"),
        ("volumes: {claims: [a]}", "volumes.claims: must be a mapping, not a list"),
        (
            "volumes: {claims: {A B: {path: /x}}}",
            "volumes.claims.A B: must be claim or namespace/claim",
        ),
        (
            "volumes: {claims: {value: {path: x}}}",
            "volumes.claims.value.path: must be an absolute path",
        ),
        (
            "volumes: {claims: {a/b: {path: /x/$user}}}",
            "volumes.claims.a/b.path: must not hold $, except for $namespace, $claim, $pod, $uid",
        ),
        (
            "volumes: {claims: {a/b: {path: /x/$podname}}}",
            "volumes.claims.a/b.path: must not hold $, except for $namespace, $claim, $pod, $uid",
        ),
        ("environment: {set: {A: 1}}", "environment.set.A: must be text, not a number"),
        ("environment: {set: {A: }}", "environment.set.A: must not be empty"),
        ("environment: {set: {1: a}}", "environment.set.1: must be text, not a number"),
        ("environment: {set: {A=B: a}}", "environment.set.A=B: must be the name of a variable"),
        ('environment: {set: {A: "a\\0"}}', "environment.set.A: must not hold a NUL character"),
        (
            "environment: {keep: [A*, $A]}",
            "environment.keep[1]: must be a shell pattern for names of variables",
        ),
        ("script: {bash: /my bash}", "script.bash: must not hold white space"),
        ("script: {bash: ''}", "script.bash: must be an absolute path"),
        (
            'script: {header: "a\\rb"}',
            "script.header: must not hold control characters other than tabs and line ends",
        ),
        ("limits: {cpu: many}", "limits.cpu: not a quantity: many"),
        ("limits: {cpu: true}", "limits.cpu: must be text, not a boolean"),
        ("limits: {memory: 4 GB}", "limits.memory: not a quantity: 4 GB"),
        ("limits: {cpu: 0}", "limits.cpu: must be more than 0"),
        ("limits: {memory: -1Gi}", "limits.memory: must be more than 0"),
        ("limits: {wall_time_s: 0}", "limits.wall_time_s: must be from 1 to 2147483647"),
        ("limits: 5", "limits: must be a mapping, not a number"),
        ("rules: {annotations: [a b]}", "rules.annotations[0]: must not hold white space"),
        ("[1, 2]", "must be a mapping of sections, not a list"),
        ("some words", "must be a mapping of sections, not text"),
        ("a: b: c", "line 1: mapping values are not allowed here"),
        ("images:\n  cache: /a\n  cache: /b\n", "line 3: the key cache stands there twice"),
        ("---\n---\n", "line 2: but found another document"),
        (
            "a: !!python/object/apply:os.getcwd []",
            "line 1: could not determine a constructor for the tag"
            " 'tag:yaml.org,2002:python/object/apply:os.getcwd'",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(text: str, line: str) -> None:
    where = "build.yaml: "
    assert complaint(text) == where + line


def test_the_first_mistake_is_told_and_the_others_are_counted() -> None:
    text = "images: {pull_attempts: x, zzz: 1}\nscript: {bash: 1}"
    known = "prefix, root, directory, unpacked, cache, pull_attempts, pull_backoff_s"
    assert complaint(text) == (
        f"build.yaml: images.zzz: unknown key (known here: {known}, always_recheck_s, lock_stale_s)"
        " (and 2 more)"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("images = [", "build.toml: not TOML: "),
        ("[images]\ncache = /x\n", "build.toml: not TOML: "),
        ("[images]\n[images]\n", "build.toml: not TOML: "),
        ("x = " + "[" * 5000, "build.toml: not TOML: "),
        ("[images]\ncache = 2024-01-01\n", "build.toml: images.cache: must be text, not a date"),
    ],
)
def test_broken_toml_is_one_line(text: str, words: str) -> None:
    assert complaint(text, "build.toml").startswith(words)


@pytest.mark.parametrize(
    "text",
    ["\0", "[" * 1000, "a: &a [*a]", "? {a: b}\n: 1", "\t- a\n", "!!binary x", "%", "9" * 5000],
    ids=lambda text: repr(text[:12]),
)
def test_whatever_the_file_holds_it_is_one_line(text: str) -> None:
    assert complaint(text).startswith("build.yaml: ")


WRONG: dict[str, object] = {"true or false": "yes", "whole number": "5", "list": "x", "mapping": []}


@pytest.mark.parametrize("key", keys(), ids=lambda key: key.name)
def test_a_wrong_type_of_any_key_is_one_line_that_names_it(key: Key) -> None:
    wrong = next((value for kind, value in WRONG.items() if key.type.startswith(kind)), False)
    written = to_json(EVERYTHING)
    section, name, *_ = key.name.split(".")
    holder = written[section]
    if name.endswith("[]"):
        holder = holder[name.removesuffix("[]")][0]
    elif "<name>" in key.name:
        holder = holder[name]["home"]
    holder[key.name.rpartition(".")[2]] = wrong
    where = key.name.replace("[]", "[0]").replace("<name>", "home")
    assert complaint(yaml.safe_dump(written)).startswith(f"build.yaml: {where}: must be ")


# --- the wire -----------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [BuildConfig(), EVERYTHING], ids=["defaults", "everything"])
def test_nothing_is_lost_on_the_wire(config: BuildConfig) -> None:
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_the_wire_may_bring_keys_of_a_newer_version() -> None:
    newer = to_json(EVERYTHING)
    newer["moons"] = {"count": 2}
    newer["images"]["colour"] = "red"
    newer["volumes"]["host_paths"][0]["owner"] = 5
    newer["volumes"]["claims"]["home"]["owner"] = 5
    assert from_json(newer) == EVERYTHING


def test_the_wire_may_leave_keys_out() -> None:
    assert from_json({"runtime": {"name": "podman"}}) == BuildConfig(runtime=Runtime("podman"))


@pytest.mark.parametrize(
    ("mapping", "line"),
    [
        ({"images": {"cache": 5}}, "BuildConfig: images.cache: must be text, not a number"),
        ({"images": None}, "BuildConfig: images: must not be empty"),
        ({"images": []}, "BuildConfig: images: must be a mapping, not a list"),
        ([], "BuildConfig: must be a mapping, not a list"),
        (None, "BuildConfig: must not be empty"),
        ({"images": {"cache": "\ud800"}}, "BuildConfig: images.cache: must be valid Unicode"),
        (
            {"images": {"cache": "/$(id)"}},
            "BuildConfig: images.cache: must not hold $: no variables are filled in here",
        ),
        (
            {"script": {"bash": "/bin/bash\n/bin/evil"}},
            "BuildConfig: script.bash: must be one line without control characters",
        ),
    ],
)
def test_what_comes_over_the_wire_is_checked_like_a_file(mapping: Any, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_json(mapping)
    assert str(caught.value) == line


# --- keys of older configurations ---------------------------------------------------------------

SOME_APPTAINER = Runtime("apptainer")
SOME_SINGULARITY = Runtime("singularity")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("volumes: {scratch_area: /s}", BuildConfig(SOME_APPTAINER, volumes=Volumes("/s"))),
        (
            "volumes: {apptainer_cachedir: /c}",
            BuildConfig(SOME_APPTAINER, images=Images(cache="/c")),
        ),
        ("volumes: {image_dir: /i}", BuildConfig(SOME_APPTAINER, images=Images(directory="/i"))),
        (
            "volumes: {cvmfs_unpacked_path: /cvmfs/u}",
            BuildConfig(SOME_APPTAINER, images=Images(unpacked="/cvmfs/u")),
        ),
        (
            "volumes: {additional_directories_in_path: [/opt/bin]}",
            BuildConfig(SOME_APPTAINER, environment=Environment(path=("/opt/bin",))),
        ),
        (
            "apptainer: {executable: /usr/bin/apptainer}",
            BuildConfig(Runtime("apptainer", "/usr/bin/apptainer")),
        ),
        (
            "apptainer: {executable: /opt/singularity-ce/bin/singularity}",
            BuildConfig(Runtime("singularity", "/opt/singularity-ce/bin/singularity")),
        ),
        ("apptainer: {executable: /opt/run-it}", BuildConfig(Runtime("apptainer", "/opt/run-it"))),
        ("apptainer: {nvidia_support: true}", BuildConfig(Runtime("apptainer", gpu="always"))),
        ("apptainer: {nvidia_support: false}", BuildConfig(Runtime("apptainer", gpu="never"))),
        (
            "apptainer: {tmp_dir_mode: bind}",
            BuildConfig(SOME_APPTAINER, apptainer=Apptainer(tmp_dir="bind")),
        ),
        (
            "slurm: {header: module load x}",
            BuildConfig(SOME_APPTAINER, script=Script(header="module load x")),
        ),
        ("slurm: {footer: sync}", BuildConfig(SOME_APPTAINER, script=Script(footer="sync"))),
        ("CommandPrefix: umask 7", BuildConfig(SOME_SINGULARITY, script=Script(header="umask 7"))),
        (
            "ImagePrefix: 'docker://'",
            BuildConfig(SOME_SINGULARITY, images=Images(prefix="docker://")),
        ),
        ("SingularityPath: singularity", BuildConfig(SOME_SINGULARITY)),
        (
            "SingularityPath: /usr/bin/apptainer",
            BuildConfig(Runtime("apptainer", "/usr/bin/apptainer")),
        ),
        ("SingularityPath: /opt/run-it", BuildConfig(Runtime("singularity", "/opt/run-it"))),
        (
            "SingularityDefaultOptions: [--nv, --no-eval, '--bind /a:/b,/c']",
            BuildConfig(
                Runtime("singularity", options=("--nv", "--no-eval", "--bind", "/a:/b,/c"))
            ),
        ),
        ("ContainerRuntime: singularity", BuildConfig(SOME_SINGULARITY)),
        ("BashPath: /opt/bash", BuildConfig(SOME_SINGULARITY, script=Script(bash="/opt/bash"))),
    ],
)
def test_an_old_key_that_still_means_the_same_is_understood(
    text: str, expected: BuildConfig
) -> None:
    if "." not in next(key for key in UNDERSTOOD if text.startswith(key.partition(".")[0])):
        # The Slurm plugin let its users have all annotations.
        expected = dataclasses.replace(expected, rules=Rules(annotations=("*", *ON_THE_NODE)))
    assert load(text, "build.yaml") == expected
    assert next(iter(yaml.safe_load(text))) in {key.partition(".")[0] for key in UNDERSTOOD}


OLD_KEYS = {  # of the older NATS plugin's BuildConfig
    "volumes": "scratch_area apptainer_cachedir image_dir cvmfs_unpacked_path"
    " additional_directories_in_path fuse_sleep_seconds",
    "apptainer": "executable fakeroot userns uts sharens containall fuse_mode no_init no_home"
    " no_privs cleanenv nvidia_support unsquash tmp_dir_mode",
    "shub_proxy": "server master_token cache_validity_seconds",
    "slurm": "flavors bash_executable sbatch_executable squeue_executable sacct_executable nodes"
    " cpus_per_task mem_per_cpu partition qos account job_name mail_user mail_type reservation"
    " nodelist time max_time_seconds sandbox output error memory cpu ntasks generic_resources"
    " flags header footer",
    "resources": "cpu memory gpus pods",
    "node": "labels taints",
    "network": "allowed wstunnel_binary slirp4netns_binary dynamic_fwd_port tmp_resolv_conf"
    " tap_cidr tap_mtu tun_ip tun2socks_binary proxy_cmd tunnel_finalization",
}
SAME = "fakeroot userns uts containall no_init no_home no_privs unsquash"
SLURM_PLUGIN = """
    SidecarPort Socket SbatchPath ScancelPath SqueuePath SinfoPath CommandPrefix ImagePrefix
    SingularityPath SingularityDefaultOptions SingularityPrefix EnrootPrefix ContainerRuntime
    EnrootPath EnrootDefaultOptions ExportPodData DataRootFolder Namespace VKConfigPath Tsocks
    TsocksPath TsocksLoginNode BashPath VerboseLogging ErrorsOnlyLogging EnableProbes Flavors
    DefaultFlavor DefaultUID Taints ResourceScriptPath
"""
ALL_OLD = [f"{section}.{key}" for section, names in OLD_KEYS.items() for key in names.split()]


def written(key: str, value: object) -> dict[str, Any]:
    section, dot, name = key.partition(".")
    return {section: {name: value}} if dot else {section: value}


@pytest.mark.parametrize("key", [*ALL_OLD, *SLURM_PLUGIN.split()])
def test_every_old_key_is_understood_or_refused_with_the_new_place(key: str) -> None:
    if key in [f"apptainer.{name}" for name in SAME.split()]:
        value = getattr(config_of(written(key, True)).apptainer, key.partition(".")[2])
        assert value is True
    elif key in UNDERSTOOD:
        assert config_of(written(key, None)) == BuildConfig()
    else:
        line = complaint(yaml.safe_dump(written(key, "x")))
        assert line.startswith(f"build.yaml: {key}: ")
        places = (
            "is now |is always so: |is not supported: |belongs to |is the submitter's business: "
        )
        assert re.match(places, line[len(f"build.yaml: {key}: ") :])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("slurm: {bash_executable: /bin/sh}", "slurm.bash_executable: is now script.bash"),
        (
            "slurm: {flavors: []}",
            "slurm.flavors: is now pools[].options.flavors in the submitter's configuration",
        ),
        ("slurm: {time: 3}", "slurm.time: is now defaults.wall_time_s, in seconds"),
        ("slurm: 5", "slurm: belongs to pools[].options in the submitter's configuration"),
        (
            "resources: {cpu: 5}",
            "resources.cpu: is now pools[].resources in the submitter's configuration",
        ),
        (
            "node: {labels: []}",
            "node.labels: is now pools[].labels in the submitter's configuration",
        ),
        (
            "apptainer: {cleanenv: true}",
            "apptainer.cleanenv: is always so: containers see their own variables,"
            " environment.set and environment.keep",
        ),
        (
            "shub_proxy: {server: a}",
            "shub_proxy.server: is not supported: nodes pull images from their registry into"
            " images.cache",
        ),
        (
            "SbatchPath: /usr/bin/sbatch",
            "SbatchPath: is now pools[].options.programs.sbatch in the submitter's configuration",
        ),
        ("Flavors:", "Flavors: is now pools[].options.flavors in the submitter's configuration"),
        ("Taints: {a: b}", "Taints: is now pools[].taints in the submitter's configuration"),
        (
            "DefaultUID: 5",
            "DefaultUID: is the submitter's business: jobs run as the user that it submits as",
        ),
        (
            "ContainerRuntime: enroot",
            "ContainerRuntime: is not supported: enroot is none of the runtimes of runtime.name",
        ),
        (
            "ContainerRuntime: docker",
            "ContainerRuntime: must be singularity; the key is now runtime.name",
        ),
        ("apptainer: {nvidia_support: 1}", "apptainer.nvidia_support: must be true or false"),
        (
            "SingularityDefaultOptions: ['--bind \"/a']",
            "SingularityDefaultOptions: cannot be split into words: No closing quotation",
        ),
    ],
)
def test_old_keys_are_refused_in_these_words(text: str, line: str) -> None:
    assert complaint(text) == f"build.yaml: {line}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("volumes: {scratch_area: x}", "volumes.scratch_area: must be an absolute path"),
        ("volumes: {image_dir: 5}", "volumes.image_dir: must be text, not a number"),
        (
            "volumes: {additional_directories_in_path: [/a, b]}",
            "volumes.additional_directories_in_path[1]: must be an absolute path",
        ),
        ("apptainer: {executable: 5}", "apptainer.executable: must be text, not a number"),
        ("SingularityPath: ./x", "SingularityPath: must be an absolute path"),
        ("SingularityDefaultOptions: --nv", "SingularityDefaultOptions: must be a list, not text"),
        (
            "apptainer: {tmp_dir_mode: x}",
            "apptainer.tmp_dir_mode: must be one of scratch, bind, none",
        ),
        ("images: 5\nvolumes: {image_dir: /x}", "images: must be a mapping, not a number"),
        ("runtime: 5\nCommandPrefix: x", "runtime: must be a mapping, not a number"),
    ],
)
def test_a_wrong_value_is_told_under_the_name_that_stands_in_the_file(text: str, line: str) -> None:
    assert complaint(text) == f"build.yaml: {line}"


@pytest.mark.parametrize(
    ("text", "old", "other", "new"),
    [
        (
            "volumes: {scratch: /a, scratch_area: /a}",
            "volumes.scratch_area",
            *["volumes.scratch"] * 2,
        ),
        (
            "runtime: {name: podman}\napptainer: {executable: /a/apptainer}",
            "apptainer.executable",
            *["runtime.name"] * 2,
        ),
        (
            "runtime: {gpu: auto}\napptainer: {nvidia_support: true}",
            "apptainer.nvidia_support",
            *["runtime.gpu"] * 2,
        ),
        ("slurm: {header: a}\nCommandPrefix: b", "CommandPrefix", "slurm.header", "script.header"),
        (
            "runtime: {name: podman}\nContainerRuntime: singularity",
            "ContainerRuntime",
            *["runtime.name"] * 2,
        ),
    ],
)
def test_old_and_new_key_for_the_same_are_named_both(
    text: str, old: str, other: str, new: str
) -> None:
    expected = f"build.yaml: {old}: is about the same as {other}: keep one of them, as {new}"
    assert complaint(text) == expected


def test_old_and_new_keys_for_different_things_go_together() -> None:
    text = "runtime: {name: podman}\nvolumes: {scratch_area: /s, memory: /m}\nslurm: {footer: x}\n"
    expected = BuildConfig(
        Runtime("podman"), volumes=Volumes("/s", "/m"), script=Script(footer="x")
    )
    assert load(text, "build.yaml") == expected


def test_the_name_of_the_program_says_more_than_the_family() -> None:
    text = "ContainerRuntime: singularity\nSingularityPath: /usr/bin/apptainer\n"
    assert load(text, "SlurmConfig.yaml").runtime == Runtime("apptainer", "/usr/bin/apptainer")


def test_empty_sections_of_old_files_are_no_mistake() -> None:
    assert load("slurm:\nresources: {}\n", "build.yaml") == BuildConfig()


# --- the sample and the documentation -----------------------------------------------------------


def test_the_sample_loads_to_the_defaults() -> None:
    assert load(sample(), "sample.yaml") == BuildConfig()


def test_the_sample_shows_and_explains_every_key() -> None:
    shown = yaml.safe_load(sample())
    comments = " ".join(re.findall(r"^ *# (.*)$", sample(), re.MULTILINE))
    for key in keys():
        section, name = key.name.split(".", 1)
        assert key.doc in comments
        assert f"{name}: " in comments if "." in name else name in shown[section]


def test_every_key_and_section_has_its_words() -> None:
    assert all(key.doc.endswith(".") and key.type for key in keys())


def rows(title: str) -> list[list[str]]:
    """The rows of the tables below a title of the document, without their heads."""
    part = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ") and "| key |" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_document_lists_every_key_with_its_type_and_default() -> None:
    expected = [[f"`{key.name}`", key.type, default_of(key)] for key in keys()]
    assert [row[:3] for row in rows("Keys")] == expected
    assert all(row[3] for row in rows("Keys"))


def test_the_document_lists_every_old_key() -> None:
    def in_the_document(key: str) -> str:
        section, dot, name = key.partition(".")
        return f"`[{section}] {name}`" if dot else f"`{key}`"

    listed = [row[0] for row in rows("Keys of older configurations")][1:]
    assert sorted(listed) == sorted(in_the_document(key) for key in [*UNDERSTOOD, *REFUSED])


def test_what_the_document_says_about_refused_keys_is_what_they_are_told() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").replace("`", "")
    assert [reason for reason in REFUSED.values() if f"refused: {reason} |" not in text] == []


def test_the_examples_of_the_document_load() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    names = [load(example, "example.yaml").runtime.name for example in examples]
    assert names == ["apptainer", "podman", "host"]


def test_the_mistakes_that_the_document_shows_are_told_so() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert complaint("images: {cahce: /x}") in text
    assert complaint("runtime: {name: docker}") in text
