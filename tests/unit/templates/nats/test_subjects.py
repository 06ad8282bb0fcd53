"""Subjects: what is built is what is parsed, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from templates.common.errors import WireError
from templates.nats import subjects
from templates.nats.subjects import ANY, Address, is_inbox, parse, subject

JOB = "hello-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
ITEMS = {subjects.DELETE: JOB, subjects.LOGS: JOB}
ALL = [
    (row.kind, *("p", ITEMS.get(row.kind, "0a"))[: row.tokens], *[""] * (2 - row.tokens))
    for row in subjects.TABLE
]
PROTOCOL = Path(__file__).resolve().parents[4] / "docs" / "protocol.md"


@pytest.mark.parametrize("root", ["interlink", "lab.interlink", "a-b_C.9"])
@pytest.mark.parametrize(("kind", "pool", "item"), ALL)
def test_what_is_built_is_parsed(root: str, kind: str, pool: str, item: str) -> None:
    assert parse(root, subject(root, kind, pool, item)) == Address(kind, pool, item)


def test_the_documented_subjects_are_these() -> None:
    assert subject("interlink", subjects.DELETE, "p", JOB) == f"interlink.delete.p.{JOB}"
    assert subject("interlink", subjects.STATUS, "p", ANY) == "interlink.status.p"
    assert subject("interlink", subjects.LOGS, ANY, ANY) == "interlink.logs.*.*"
    assert subject("interlink", subjects.HELLO) == "interlink.hello"
    documented = re.findall(r"<root>\.(\w+)([.<>\w]*) +(?:request|publish)", subjects.__doc__ or "")
    assert documented == [(row.kind, shown(row)) for row in subjects.TABLE]
    page = PROTOCOL.read_text(encoding="utf-8")
    documented = re.findall(r"^\| `<root>\.(\w+)([.<>\w]*)` \|", page, re.MULTILINE)
    assert sorted(documented) == sorted((row.kind, shown(row)) for row in subjects.TABLE)


def shown(row: subjects.SubjectRow) -> str:
    item = "<job>" if row.kind in ITEMS else "<id>"
    return "".join(f".{token}" for token in ("<pool>", item)[: row.tokens])


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
        ("_R_.abcdef.ghijkl", True),
        ("_R_", False),
        ("$KV.tokens-site-a.KEY", False),
        ("$JS.API.STREAM.DELETE.KV_tokens-site-a", False),
        ("anything.at.all", False),
        ("", False),
        ("_INBOX", False),
        ("_INBOX_site", False),
        ("_INBOXES.x", False),
        ("_R_x.y", False),
        ("interlinkx.create.p.x", False),
        ("interlink", False),
        ("interlink.create.p.x", False),
        ("interlink.hello", False),
        ("$KV.tokens-site.key", False),
        ("$JS.API.STREAM.DELETE.KV_tokens-site", False),
        ("anything.at.all", False),
    ],
)
def test_answers_go_to_inboxes_only(text: str, inbox: bool) -> None:
    assert is_inbox(text) is inbox
