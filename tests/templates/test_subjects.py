"""Subjects: what is built is what is parsed, and nothing else is."""

from __future__ import annotations

import pytest

from templates import subjects
from templates.errors import WireError
from templates.subjects import ANY, Address, is_inbox, parse, subject

JOB = "hello-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
ALL = [
    (subjects.CREATE, "p", ""),
    (subjects.DELETE, "p", JOB),
    (subjects.LOGS, "p", JOB),
    (subjects.REQUEST_PARTS, "p", "0a"),
    (subjects.ANSWER_PARTS, "p", "0a"),
    (subjects.QUERY, "p", ""),
    (subjects.CONFIG, "p", ""),
    (subjects.RESOURCES, "p", ""),
    (subjects.STATUS, "p", ""),
    (subjects.SHUTDOWN, "p", ""),
    (subjects.HELLO, "", ""),
]


@pytest.mark.parametrize("root", ["interlink", "lab.interlink", "a-b_C.9"])
@pytest.mark.parametrize(("kind", "pool", "item"), ALL)
def test_what_is_built_is_parsed(root: str, kind: str, pool: str, item: str) -> None:
    assert parse(root, subject(root, kind, pool, item)) == Address(kind, pool, item)


def test_the_documented_subjects_are_these() -> None:
    assert subject("interlink", subjects.DELETE, "p", JOB) == f"interlink.delete.p.{JOB}"
    assert subject("interlink", subjects.STATUS, "p", ANY) == "interlink.status.p"
    assert subject("interlink", subjects.LOGS, ANY, ANY) == "interlink.logs.*.*"
    assert subject("interlink", subjects.HELLO) == "interlink.hello"
    assert subjects.__doc__ is not None
    for kind, _, _ in ALL:
        assert f"<root>.{kind}" in subjects.__doc__


@pytest.mark.parametrize("bad", ["", ">", "a.b", "a b", "a\n", "x" * 64, "é", "*x"])
def test_what_cannot_be_a_token_is_not_built(bad: str) -> None:
    with pytest.raises(WireError):
        subject("interlink", subjects.STATUS, bad)
    with pytest.raises(WireError):
        subject("interlink", subjects.DELETE, "p", bad)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interlink",
        "interlink.",
        "interlinkx.status.p",
        "other.status.p",
        "interlink.status",
        "interlink.status.",
        "interlink.status.p.q",
        "interlink.status.*",
        "interlink.status.>",
        "interlink.delete.p",
        "interlink.delete.p.",
        "interlink.delete..x",
        "interlink.hello.p",
        "interlink.nonesuch",
        "interlink.nonesuch.p",
        "interlink.parts.p.x",
        "interlink.status.p\n",
    ],
)
def test_what_is_no_subject_of_ours_is_refused(text: str) -> None:
    with pytest.raises(WireError) as caught:
        parse("interlink", text)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "inbox"),
    [
        ("_INBOX.x.y", True),
        ("_INBOX_site.x", True),
        ("interlinkx.create.p.x", True),
        ("", False),
        ("interlink", False),
        ("interlink.create.p.x", False),
        ("interlink.hello", False),
    ],
)
def test_answers_never_go_to_our_own_subjects(text: str, inbox: bool) -> None:
    assert is_inbox("interlink", text) is inbox
