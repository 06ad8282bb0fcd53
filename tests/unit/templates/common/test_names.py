"""Names: what is valid, and the one name that a job has everywhere."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from templates.common.errors import ConfigError, PodRejected
from templates.common.names import (
    check_root,
    check_token,
    flavor_name,
    is_label,
    is_resource,
    is_subdomain,
    job_name,
    pool_of_value,
    pool_value,
    uid_of,
)

UID = "6a1f0c1e-7f0b-4a38-9a36-2f4c9f6f0a11"


@pytest.mark.parametrize(
    ("pod_name", "stem"),
    [
        ("train-0", "train-0"),
        ("a", "a"),
        ("x" * 24, "x" * 24),
        ("x" * 25, "x" * 24),
        ("x" * 23 + "-y", "x" * 23),
        ("Train.0", "train-0"),
        ("a..b", "a-b"),
        ("-a-", "a"),
        ("über", "ber"),
        ("...", "pod"),
        ("", "pod"),
        ("0", "0"),
    ],
)
def test_a_job_is_named_after_its_pod_and_uid(pod_name: str, stem: str) -> None:
    assert job_name(pod_name, UID) == f"{stem}-{UID}"


@pytest.mark.parametrize("pod_name", ["a", "x" * 253, "a.b.c", "9" * 60, "---", "Ä" * 50])
def test_a_job_name_is_a_label_and_a_token_and_leads_back_to_the_uid(pod_name: str) -> None:
    name = job_name(pod_name, UID)
    assert is_label(name)
    assert len(name) <= 61
    assert check_token("job", name) == name
    assert uid_of(name) == UID


def test_pods_with_the_same_name_have_jobs_with_different_names() -> None:
    assert job_name("a", UID) != job_name("a", UID.replace("6a1f", "6a1e"))


@pytest.mark.parametrize(
    "uid",
    ["", "x", UID.upper(), UID + "0", UID[:-1], UID.replace("-", ""), UID + "\n", "../" + UID],
)
def test_a_uid_must_be_a_lower_case_uuid(uid: str) -> None:
    with pytest.raises(PodRejected) as caught:
        job_name("a", uid)
    assert str(caught.value) == "pod.metadata.uid: must be a lower-case UUID"


@pytest.mark.parametrize(
    "job",
    ["", UID, f"-{UID}", f"a{UID}", f"A-{UID}", f"a.b-{UID}", f"{'x' * 25}-{UID}", f"a-{UID}\n"],
)
def test_what_is_no_job_name_has_no_uid(job: str) -> None:
    with pytest.raises(PodRejected) as caught:
        uid_of(job)
    assert str(caught.value).startswith("job name: does not")


@pytest.mark.parametrize("token", ["slurm-a", "A_b-9", "x" * 63])
def test_a_token_is_returned_as_it_is(token: str) -> None:
    assert check_token("pool", token) == token


@pytest.mark.parametrize("token", ["", "a.b", "a b", "*", ">", "a*", "x" * 64, "é", "a\n", None, 3])
def test_what_would_change_a_subject_is_no_token(token: object) -> None:
    with pytest.raises(PodRejected) as caught:
        check_token("pool", token)
    expected = "pool: must be 1 to 63 letters, digits, dashes and underscores"
    assert str(caught.value) == expected


def test_the_caller_says_whose_fault_a_bad_token_is() -> None:
    with pytest.raises(ConfigError):
        check_token("pool", "a.b", ConfigError)


@pytest.mark.parametrize("text", ["a", "0", "a-b", "x" * 63])
def test_a_label_is_known(text: str) -> None:
    assert is_label(text)


@pytest.mark.parametrize("text", ["", "-a", "a-", "A", "a.b", "a_b", "x" * 64, "a\n", "é"])
def test_what_is_no_label_is_known(text: str) -> None:
    assert not is_label(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", True),
        ("a.b-c.0", True),
        ("x" * 253, True),
        ("x" * 254, False),
        ("a..b", False),
        (".a", False),
        ("a.", False),
        ("a.-b", False),
        ("", False),
        ("a/b", False),
    ],
)
def test_a_subdomain_is_told_from_other_text(text: str, expected: bool) -> None:
    assert is_subdomain(text) is expected


# --- in Kubernetes --------------------------------------------------------------------------------

POOLS = st.text("aZ0-_p", min_size=1, max_size=63) | st.from_regex(
    "[A-Za-z0-9_-]{1,63}", fullmatch=True
)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")  # Kubernetes' own words


@pytest.mark.parametrize(
    ("pool", "value"),
    [
        ("slurm-a", "slurm-a"),
        ("A_b", "A_b"),
        ("p", "p"),
        ("x" * 63, "x" * 63),
        ("-abc", "p.-abc"),
        ("abc_", "abc_.p"),
        ("-a-", "p.-a-.p"),
        ("-", "p.-.p"),
        ("__", "p.__.p"),
        ("-" + "a" * 60, "p.-" + "a" * 60),
    ],
)
def test_a_toleration_names_a_pool(pool: str, value: str) -> None:
    assert pool_value(pool) == value
    assert pool_of_value(value) == pool


@given(POOLS)
def test_what_a_toleration_names_is_the_pool(pool: str) -> None:
    try:
        value = pool_value(pool)
    except PodRejected as error:
        assert len(pool) > 59
        assert str(error).isprintable()
        return
    assert LABEL_VALUE.fullmatch(value)
    assert len(value) <= 63
    assert pool_of_value(value) == pool
    assert (value == pool) == (LABEL_VALUE.fullmatch(pool) is not None)


@given(st.text("ap-_.", max_size=7) | st.text("p.", max_size=9) | st.text(max_size=70))
def test_a_value_is_that_of_its_pool_or_refused(value: str) -> None:
    try:
        pool = pool_of_value(value)
    except PodRejected as error:
        assert str(error).isprintable()
        return
    assert pool_value(pool) == value


def test_no_two_pools_share_a_value() -> None:
    pools = ["".join(letters) for n in range(1, 7) for letters in product("pA-_", repeat=n)]
    assert len({pool_value(pool) for pool in pools}) == len(pools)


@pytest.mark.parametrize("pool", ["-" + "a" * 61, "a" * 62 + "_", "-" + "a" * 58 + "--"])
def test_a_pool_that_no_toleration_can_name_is_refused(pool: str) -> None:
    with pytest.raises(ConfigError) as caught:
        pool_value(pool, ConfigError)
    expected = (
        rf"pool {pool}: is too long for a toleration, where it would be [a-z_.-]+, at most 63"
    )
    assert re.fullmatch(expected, str(caught.value))


@pytest.mark.parametrize("pool", ["", "a.b", "x" * 64, "p.a", "é"])
def test_what_is_no_pool_has_no_value(pool: str) -> None:
    with pytest.raises(PodRejected, match="pool: must be 1 to 63 letters"):
        pool_value(pool)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("-abc", "the pool -abc is written p.-abc"),
        ("p.abc", "the pool abc is written abc"),
        ("abc.p", "the pool abc is written abc"),
        ("p.p", "the pool p is written p"),
        ("p.-abc.p", "the pool -abc is written p.-abc"),
        ("p.p.-abc", "must be 1 to 63 letters, digits, dashes and underscores"),
        ("a.b", "must be 1 to 63 letters, digits, dashes and underscores"),
        ("p.", "must be 1 to 63 letters, digits, dashes and underscores"),
        ("", "must be 1 to 63 letters, digits, dashes and underscores"),
        ("abc\n", "must be 1 to 63 letters, digits, dashes and underscores"),
        (None, "must be 1 to 63 letters, digits, dashes and underscores"),
        (3, "must be 1 to 63 letters, digits, dashes and underscores"),
    ],
)
def test_a_value_that_no_pool_has_is_refused(value: object, what: str) -> None:
    with pytest.raises(PodRejected) as caught:
        pool_of_value(value, "toleration pool.vk.io")
    assert str(caught.value) == f"toleration pool.vk.io: {what}"


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("main", "gpu", "slurm-a"), "main.gpu.slurm-a"),
        (("main.team.example.org", "gpu", "a"), "main.team.example.org.gpu.a"),
        (("main", "gpu", "Pool_A"), "main.gpu.pool-a.x4bd6aff3"),
        (("main", "gpu", "-_-"), "main.gpu.pool.x8b0afce4"),
        (("main", "gpu", "_a__b-"), "main.gpu.a-b.x57d3d196"),
    ],
)
def test_a_flavor_is_named_readably(parts: tuple[str, ...], name: str) -> None:
    assert flavor_name(*parts) == name


LABELS = st.from_regex("[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
TRIPLES = st.tuples(LABELS | st.text(max_size=300), LABELS | st.text(max_size=70), POOLS)


@given(TRIPLES)
def test_a_flavors_name_is_a_subdomain(parts: tuple[str, str, str]) -> None:
    assert is_subdomain(flavor_name(*parts))


@given(LABELS, LABELS, LABELS)
def test_what_is_a_label_stays_as_it_is(queue: str, group: str, pool: str) -> None:
    if not re.fullmatch("x[0-9a-f]{8}", pool):
        assert flavor_name(f"q{queue}", f"g{group}", pool) == f"q{queue}.g{group}.{pool}"
    assert flavor_name("Q", f"g{group}", "p").endswith(f".g{group}.p")


def test_no_two_pools_share_a_flavor() -> None:
    words = ["".join(letters) for n in range(1, 7) for letters in product("aA-_", repeat=n)]
    words += ["Pool_A", "pool-a", "POOL-A", "pool_a", "Pool-a", "pool", "x" * 63, "X" * 63]
    assert len({flavor_name("q", "g", word) for word in words}) == len(words)
    assert len({flavor_name("q" * 253, "g", word) for word in words}) == len(words)


def test_no_two_flavors_share_a_name() -> None:
    """Not even those of pools that are called what another one's flavor is."""
    hashed = flavor_name("Pool_A").rpartition(".")[2]
    assert re.fullmatch("x[0-9a-f]{8}", hashed)
    words = ["a", "pool-a", "Pool_A", "POOL-A", "pool", "_", hashed, hashed.upper()]
    queues = ["a", "a.b", "a.b.pool-a", f"pool-a.{hashed}", f"a.pool-a.{hashed}", "a.pool-a", "b"]
    names = [flavor_name(*parts) for parts in product(queues, [*words, "b"], [*words, "b"])]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("length", [*range(235, 254)])
def test_a_name_that_is_too_long_is_cut(length: int) -> None:
    queue = ("ab-c." * 51)[:length].strip("-.")
    names = {flavor_name(queue, "group", pool) for pool in ("pool-1", "pool-2", "Pool_3")}
    assert len(names) == 3
    assert all(is_subdomain(name) and name.startswith(queue[:200]) for name in names)


@pytest.mark.parametrize("root", ["a", "a.b", "A-1_x.y", "x" * 120])
def test_roots(root: str) -> None:
    assert check_root("nats.root", root) == root


@pytest.mark.parametrize(
    "root", ["", ".", "a.", ".a", "a..b", "*", "a.>", "a b", "x" * 121, None, 5]
)
def test_what_is_no_root(root: object) -> None:
    with pytest.raises(ConfigError) as caught:
        check_root("nats.root", root)
    assert str(caught.value).startswith("nats.root: must be letters")


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        ("cpu", True),
        ("ephemeral-storage", True),
        ("nvidia.com/gpu", True),
        ("hugepages-2Mi", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("a.b/C_d..e", True),
        ("x" * 63, True),
        (f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}/x", True),
        (f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 62}/x", False),
        ("x" * 64, False),
        ("", False),
        ("/gpu", False),
        ("a/", False),
        ("a/b/c", False),
        ("A/b", False),
        ("a..b/c", False),
        ("a.-b/c", False),
        ("-a", False),
        ("a-", False),
        ("a b", False),
        ("ä", False),
        ("a\n", False),
        (7, False),
        (None, False),
    ],
)
def test_a_resource_is_called_as_kubernetes_wants_it(name: object, fine: bool) -> None:
    assert is_resource(name) is fine
