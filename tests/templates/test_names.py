"""Names: what is valid, and the one name that a job has everywhere."""

from __future__ import annotations

import pytest

from templates.errors import ConfigError, PodRejected
from templates.names import check_token, is_label, is_subdomain, job_name, uid_of

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
