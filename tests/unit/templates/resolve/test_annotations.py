"""The annotations of a job: which count, what they say, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from templates.common.errors import PodRejected
from templates.resolve.annotations import BindMount, JobAnnotations, job_annotations
from templates.site.build_config import ON_THE_NODE, Rules

ALL = Rules(annotations=("*", *ON_THE_NODE))
MESH = """cat <<'EOFMESH' > $TMPDIR/mesh.sh
#!/bin/bash
unshare --user --net bash -c 'exec "$@"' -- "$@"  # $HOME `id` ${X}
EOFMESH
chmod +x $TMPDIR/mesh.sh
"""


def read(rules: Rules = ALL, **annotations: str) -> JobAnnotations:
    named = {f"slurm-job.vk.io/{name.replace('_', '-')}": v for name, v in annotations.items()}
    return job_annotations(named, rules)


def refusal(annotations: dict[str, str], rules: Rules | None = None) -> str:
    with pytest.raises(PodRejected) as caught:
        job_annotations(annotations, rules or ALL)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_a_pod_without_annotations_asks_for_nothing() -> None:
    assert job_annotations({}, Rules()) == JobAnnotations()


def test_annotations_of_others_are_left_alone() -> None:
    others = {"JobID": "5", "example.org/pre-exec": "rm", "myjob.vk.io/flags": "x", "a/b": "\0"}
    assert job_annotations(others, Rules(annotations=())) == JobAnnotations()


def test_the_name_of_the_pool_is_no_wish_to_its_batch_system() -> None:
    found = job_annotations({"job.vk.io/pool": "slurm-a"}, Rules(annotations=("flags",)))
    assert found == job_annotations({}, Rules())


def test_each_annotation_has_its_place() -> None:
    annotations = {
        "slurm-job.vk.io/pre-exec": "module load x",
        "slurm-job.vk.io/singularity-commands": "echo start",
        "slurm-job.vk.io/singularity-mounts": "--bind /a:/b:ro",
        "slurm-job.vk.io/singularity-options": "--nv --env 'A=b c'",
        "slurm-job.vk.io/image-root": " /images ",
        "slurm-job.vk.io/mpi-flags": "-np 4 --map-by node",
        "slurm-job.vk.io/flags": "--time=10",
        "interlink.eu/wstunnel-client-commands": "wstunnel client x &",
        "interlink.eu/pod-ip": "10.7.0.2",
        "interlink.eu/wireguard-client-snippet": "[Interface]",
    }
    assert job_annotations(annotations, ALL) == JobAnnotations(
        pre_exec="module load x",
        singularity_commands="echo start",
        mounts=(BindMount("/a", "/b", True),),
        options=("--nv", "--env", "A=b c"),
        image_root="/images",
        mpi_flags=("-np", "4", "--map-by", "node"),
        tunnel_commands="wstunnel client x &",
        pod_ip="10.7.0.2",
        used=(
            "wstunnel-client-commands",
            "image-root",
            "mpi-flags",
            "pre-exec",
            "singularity-commands",
            "singularity-mounts",
            "singularity-options",
        ),
        backend={"flags": "--time=10"},
    )


FAMILIES = ["slurm-job.knoc.io/", "slurm-job.vk.io/", "job.vk.io/"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_read(family: str) -> None:
    read_back = job_annotations({family + "pre-exec": "x", family + "flavor": "big"}, ALL)
    assert read_back == JobAnnotations(pre_exec="x", used=("pre-exec",), backend={"flavor": "big"})


@pytest.mark.parametrize("turned", [False, True])
def test_the_later_family_wins_whatever_the_order(turned: bool) -> None:
    all_families = ["htcondor-job.knoc.io/", "htcondor-job.vk.io/", "condor-job.vk.io/", *FAMILIES]
    annotations = {family + "image-root": "/" + family for family in all_families}
    for family in reversed(all_families):
        order = sorted(annotations, reverse=turned)
        found = job_annotations({name: annotations[name] for name in order}, Rules())
        assert found.image_root == "/" + family
        del annotations[family + "image-root"]


@pytest.mark.parametrize(
    "family", ["htcondor-job.knoc.io/", "htcondor-job.vk.io/", "condor-job.vk.io/"]
)
def test_condor_families_share_two_names_and_keep_the_others_apart(family: str) -> None:
    annotations = {
        family + "image-root": "/images",
        family + "singularity-options": "--nv",
        family + "pre-exec": "x",
        family + "flags": "+Big = true",
        "slurm-job.vk.io/flags": "--time=10",
    }
    assert job_annotations(annotations, ALL) == JobAnnotations(
        options=("--nv",),
        image_root="/images",
        used=("image-root", "singularity-options"),
        backend={"condor/pre-exec": "x", "condor/flags": "+Big = true", "flags": "--time=10"},
    )


@pytest.mark.parametrize("text", [MESH, "", " \n", "a\tb\r\n", "$(id) `id` 'x' \\"])
def test_bash_texts_pass_unchanged(text: str) -> None:
    found = read(pre_exec=text, singularity_commands=text)
    assert (found.pre_exec, found.singularity_commands) == (text, text)


def test_mpi_flags_may_be_there_without_words() -> None:
    assert read().mpi_flags is None
    assert read(mpi_flags="").mpi_flags == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--nv", ("--nv",)),
        ("  --nv\n--cleanenv ", ("--nv", "--cleanenv")),
        ("--env \"A=b c\" 'x'\\''y'", ("--env", "A=b c", "x'y")),
        ("--env A=$HOME;id", ("--env", "A=$HOME;id")),
        ("# no comment", ("#", "no", "comment")),
        ("''", ("",)),
        ("", ()),
    ],
)
def test_options_are_split_as_a_shell_would_and_nothing_is_expanded(
    text: str, words: tuple[str, ...]
) -> None:
    assert read(singularity_options=text).options == words


AB = BindMount("/a", "/b")
RO = BindMount("/c", "/d", True)


@pytest.mark.parametrize(
    ("text", "mounts"),
    [
        ("", ()),
        (" ", ()),
        ("/a", (BindMount("/a", "/a"),)),
        ("--bind /a:/b", (AB,)),
        ("--bind=/a:/b", (AB,)),
        ("-B /a:/b", (AB,)),
        ("/a:/b", (AB,)),
        ("/a:/b:rw", (AB,)),
        ("--bind /a:/b --bind /c:/d:ro", (AB, RO)),
        ("--bind /a:/b,/c:/d:ro", (AB, RO)),
        ("/a:/b,/c:/d:ro", (AB, RO)),
        ("/a:/b, /c:/d:ro,", (AB, RO)),
        ("--bind /a:/b\n--bind\n/c:/d:ro\n", (AB, RO)),
        ("/a/:/b/.//", (AB,)),
        ("'/a b:/c d'", (BindMount("/a b", "/c d"),)),
        ("/c::ro", (BindMount("/c", "/c", True),)),
        ("/$HOME", (BindMount("/$HOME", "/$HOME"),)),
    ],
)
def test_mounts_in_all_their_spellings(text: str, mounts: tuple[BindMount, ...]) -> None:
    assert read(singularity_mounts=text).mounts == mounts


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("--bind", "nothing follows --bind"),
        ("/a -B", "nothing follows -B"),
        ("--home /a", "--home is not understood: only --bind is"),
        ("a:/b", "'a' is not an absolute path without .."),
        ("/a:b", "'b' is not an absolute path without .."),
        ("/a/../b", "'/a/../b' is not an absolute path without .."),
        (":/b", "'' is not an absolute path without .."),
        ("$HOME/x:/b", "'$HOME/x' is not an absolute path without .."),
        ("'/a\nb'", "'/a b' is not an absolute path without .."),
        ("/a:/b:rx", "/a:/b:rx is not /source[:/target[:ro]]"),
        ("/a:/b:ro:rw", "/a:/b:ro:rw is not /source[:/target[:ro]]"),
        ("--bind '/a", "cannot be split into words: no closing quotation"),
    ],
)
def test_mounts_that_are_none_are_refused(text: str, what: str) -> None:
    name = "slurm-job.vk.io/singularity-mounts"
    assert refusal({name: text}) == f"pod.metadata.annotations[{name}]: {what}"


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("job.vk.io/singularity-options", "'x", "cannot be split into words: no closing quotation"),
        (
            "job.vk.io/singularity-options",
            "x\\",
            "cannot be split into words: no escaped character",
        ),
        ("job.vk.io/mpi-flags", '"', "cannot be split into words: no closing quotation"),
        ("slurm-job.knoc.io/pre-exec", "a\0b", "holds a NUL character"),
        ("condor-job.vk.io/flags", "a\0b", "holds a NUL character"),
        ("interlink.eu/wstunnel-client-commands", "a\0b", "holds a NUL character"),
        ("interlink.eu/pod-ip", "a\0b", "holds a NUL character"),
    ],
)
def test_what_no_script_could_hold_is_refused_by_its_own_name(
    name: str, value: str, what: str
) -> None:
    assert refusal({name: value}) == f"pod.metadata.annotations[{name}]: {what}"


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("slurm-job.vk.io/pre-exec", replace(ALL, forbidden_annotations=("pre-exec",))),
        ("slurm-job.vk.io/pre-exec", replace(ALL, forbidden_annotations=("*",))),
        (
            "slurm-job.knoc.io/singularity-mounts",
            replace(ALL, forbidden_annotations=("x", "singularity-*")),
        ),
        ("job.vk.io/image-root", Rules(annotations=("flags", "mpi-*"))),
        ("job.vk.io/whatever", Rules(annotations=())),
        ("job.vk.io/flags", Rules(annotations=("flags",), forbidden_annotations=("flags",))),
        ("htcondor-job.vk.io/flags", Rules(forbidden_annotations=("flags",))),
        (
            "interlink.eu/wstunnel-client-commands",
            replace(ALL, forbidden_annotations=("wstunnel-*",)),
        ),
    ],
)
def test_a_site_refuses_what_it_does_not_want(name: str, rules: Rules) -> None:
    line = refusal({name: "x"}, rules)
    assert line == f"pod.metadata.annotations[{name}]: this site does not allow it"


def test_a_forbidden_annotation_is_refused_even_if_a_later_family_would_win() -> None:
    annotations = {"job.vk.io/flags": "a", "slurm-job.knoc.io/flags": "b"}
    rules = Rules(forbidden_annotations=("flags",))
    assert "slurm-job.knoc.io/flags" in refusal(annotations, rules)


def test_a_site_allows_by_pattern() -> None:
    rules = Rules(annotations=("fl*", "image-*"))
    assert read(rules, flags="--time=1", image_root="/x") == JobAnnotations(
        image_root="/x", used=("image-root",), backend={"flags": "--time=1"}
    )


@pytest.mark.parametrize("patterns", [(), ("*",), ("**", "?*", "[!x]*")])
@pytest.mark.parametrize("name", ON_THE_NODE)
@pytest.mark.parametrize("family", [*FAMILIES, "htcondor-job.vk.io/", "interlink.eu/"])
def test_what_runs_on_the_node_is_off_until_it_is_named_in_full(
    family: str, name: str, patterns: tuple[str, ...]
) -> None:
    if (family == "interlink.eu/") != name.startswith("wstunnel"):
        return  # means nothing to us
    for others in (
        patterns,
        (*patterns, f"{name[:-1]}*"),
        (*patterns, *(ON_THE_NODE.keys() - {name})),
    ):
        line = refusal({family + name: "x"}, Rules(annotations=others))
        assert "as the site's user" in line
        assert line.endswith(f"rules.annotations of the site's build config turns it on: {name}")
    job_annotations({family + name: "/x"}, Rules(annotations=(*patterns, name)))


def test_patterns_mind_upper_and_lower_case() -> None:
    assert read(Rules(forbidden_annotations=("FLAGS",)), flags="x").backend == {"flags": "x"}


def test_the_address_that_interlink_sets_is_not_for_the_site_to_refuse() -> None:
    rules = Rules(annotations=(), forbidden_annotations=("*",))
    assert job_annotations({"interlink.eu/pod-ip": "10.7.0.2"}, rules).pod_ip == "10.7.0.2"
