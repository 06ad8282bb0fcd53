"""The users that nats-site makes, on the real server: what each may do, and what none may."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from templates.cli import nats_files, nats_site
from templates.nats import accounts, permissions, subjects
from templates.nats.connection import Link, Request
from templates.nats.subjects import KUEUE, OPERATOR, PLUGIN
from tests.support.nats_users import Site, started

pytestmark = pytest.mark.security

JOB = "hello-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
TEXTS = {
    "small": "small",
    "large": "0123456789abcdef" * 250_000,  # 4 MB: beyond the server's limit, but not compressed
    "noise": os.urandom(1_500_000).hex(),  # beyond it also then
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("nats"))
    made("add", "alpha", "a1", "a2")
    made("add", "beta", "b")
    made.server.start()
    yield made
    made.server.stop()


class Raw:
    """A client that tells what the server has refused."""

    def __init__(self) -> None:
        self.client = Client()
        self.refused: list[str] = []
        self.heard: list[str] = []

    async def hear(self, subject: str, queue: str = "") -> None:
        async def keep(message: Any) -> None:
            self.heard.append(message.subject)

        await self.client.subscribe(subject, queue=queue, cb=keep)
        await self.settle()

    async def say(self, subject: str, reply: str = "") -> None:
        await self.client.publish(subject, b"{}", reply=reply)
        await self.settle()

    async def settle(self) -> None:
        await self.client.flush()
        await self.client.flush()


@contextlib.asynccontextmanager
async def raw(site: Site, name: str) -> AsyncIterator[Raw]:
    made = Raw()

    async def refuse(error: Exception) -> None:
        made.refused.append(str(error))

    await made.client.connect(
        site.server.url,
        nkeys_seed=site.seed_file(name),
        inbox_prefix=permissions.inbox_of(name),
        error_cb=refuse,
        allow_reconnect=False,
    )
    try:
        yield made
    finally:
        await made.client.close()


# --- what nobody may ------------------------------------------------------------------------------

# alpha has the pools a1 and a2; b is beta's.
HEARING = [
    ("interlink.create.b", ""),
    ("interlink.create.b", "b"),
    ("interlink.create.b", "a1"),
    ("interlink.create.*", ""),
    ("interlink.create.*", "a1"),
    ("interlink.create.>", ""),
    ("interlink.create.>", "a1"),
    ("interlink.>", "a1"),
    ("interlink.create.>", "b"),
    ("interlink.create.a1", ""),  # beside the queue group it would hear what others serve
    ("interlink.create.a1", "other"),
    ("interlink.create.a1", "a2"),
    ("interlink.create.a1", "*"),
    ("interlink.delete.b.*", "b"),
    ("interlink.query.b", "b"),
    ("interlink.query.*", "b"),
    ("interlink.logs.b.*", "b"),
    ("interlink.config.b", ""),
    ("interlink.config.a1", ""),
    ("interlink.resources.b", ""),
    ("interlink.resources.*", ""),
    ("interlink.status.b", ""),
    ("interlink.status.a1", ""),
    ("interlink.shutdown.b", ""),
    ("interlink.shutdown.*", ""),
    ("interlink.requestparts.a1.*", ""),
    ("interlink.requestparts.b.*", ""),
    ("interlink.answerparts.b.*", ""),
    ("interlink.answerparts.*.*", ""),
    ("interlink.>", ""),
    ("interlink.*.b", ""),
    ("_INBOX.>", ""),
    ("_INBOX_plugin.>", ""),
    ("_INBOX_beta.>", ""),
    ("_INBOX_kueue.>", ""),
    ("*.>", ""),
    ("*", ""),
    (">", ""),
    (">", "a1"),
    ("_R_.>", ""),  # answers to what other accounts have asked
    ("$SYS.>", ""),
    ("$SYS.ACCOUNT.*.CONNECT", ""),
    ("$JS.>", ""),
]
SAYING = [
    "interlink.create.b",
    "interlink.create.a1",
    f"interlink.delete.b.{JOB}",
    f"interlink.delete.a1.{JOB}",
    "interlink.query.b",
    "interlink.query.a1",
    f"interlink.logs.b.{JOB}",
    "interlink.config.b",
    "interlink.resources.b",
    "interlink.status.b",
    "interlink.hello",
    "interlink.shutdown.b",
    "interlink.shutdown.a1",
    "interlink.requestparts.b.0",
    "interlink.answerparts.b.0",
    "interlink.answerparts.a1.0",
    "_INBOX_plugin.x.0",
    "_INBOX_beta.x.0",
    "_INBOX_alpha.x.0",
    "_INBOX.x",
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.USER.INFO",
    "$SYS.REQ.ACCOUNT.PING.CONNZ",
    "$JS.API.INFO",
    "anything",
]


@pytest.mark.parametrize(("subject", "queue"), HEARING)
def test_a_site_may_not_hear(site: Site, subject: str, queue: str) -> None:
    async def attempt() -> None:
        async with raw(site, "alpha") as alpha:
            await alpha.hear(subject, queue)
            assert [why for why in alpha.refused if "for subscription" in why]

    asyncio.run(attempt())


@pytest.mark.parametrize("subject", SAYING)
def test_a_site_may_not_say(site: Site, subject: str) -> None:
    async def attempt() -> None:
        async with raw(site, "alpha") as alpha:
            await alpha.say(subject)
            assert [why for why in alpha.refused if "for publish" in why]

    asyncio.run(attempt())


@pytest.mark.parametrize("victim", ["interlink.create.b", "_INBOX_plugin.x.0"])
def test_a_site_cannot_grant_itself_an_answer_by_asking_itself(site: Site, victim: str) -> None:
    """A server may let a site publish to whatever a message that it hears names as its reply."""
    may = permissions.site_permissions("interlink", "alpha", ("a1", "a2"))

    async def attempt() -> None:
        async with raw(site, "alpha") as alpha, raw(site, "beta") as beta:
            await beta.hear("interlink.create.b", "b")
            for heard in may.subscribe:
                subject, _, queue = heard.partition(" ")
                await alpha.hear(subject, queue)
            assert alpha.refused == []
            for said in may.publish:
                await alpha.say(said.replace("*", "x").replace(">", "x"), reply=victim)
            assert alpha.refused == []
            await alpha.say(victim)
            assert len(alpha.refused) == 1
            await beta.settle()
            assert (alpha.heard, beta.heard) == ([], [])

    asyncio.run(attempt())


def test_the_plugin_answers_into_inboxes_only(site: Site) -> None:
    """A site asks it for a part, with a subject for the answer where it may not write itself."""

    async def attempt() -> None:
        asked = asyncio.Event()

        async def serve(request: Request) -> None:
            announced = json.loads(request.raw)["parts"]["id"]
            async with raw(site, "alpha") as alpha:
                parts = f"interlink.requestparts.a1.{announced}"
                await alpha.client.publish(parts, b"0", reply="interlink.create.b")
                reply = await alpha.client.request(parts, b"0", timeout=5)  # comes after that
                assert len(reply.data) > 100_000
            asked.set()
            await request.answer("a1", {"state": "journaled"})

        alpha, plugin = site.link("alpha"), site.link(PLUGIN)
        alpha.subscribe("interlink.create.a1", serve, queue="a1")
        async with started(alpha, plugin), raw(site, "beta") as beta:
            await beta.hear("interlink.create.b", "b")
            noise = {"script": os.urandom(1_000_000).hex()}
            await plugin.request("a1", "interlink.create.a1", noise, 20)
            await beta.settle()
            assert asked.is_set()
            assert beta.heard == []

    asyncio.run(attempt())


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        (KUEUE, "interlink.create.b"),
        (KUEUE, "interlink.shutdown.b"),
        (KUEUE, "interlink.resources.b"),
        (KUEUE, "interlink.answerparts.b.0"),
        (OPERATOR, "interlink.hello"),
        (OPERATOR, "interlink.create.b"),
        (PLUGIN, "interlink.shutdown.b"),
        (PLUGIN, "interlink.status.b"),
        (PLUGIN, "$SYS.REQ.SERVER.PING"),
    ],
)
def test_the_clusters_users_may_not_say_either(site: Site, name: str, subject: str) -> None:
    async def attempt() -> None:
        async with raw(site, name) as user:
            await user.say(subject)
            assert [why for why in user.refused if "for publish" in why]

    asyncio.run(attempt())


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        (KUEUE, "interlink.create.*"),
        (KUEUE, "interlink.status.*"),
        (KUEUE, "interlink.config.*"),
        (KUEUE, "_INBOX_plugin.>"),
        (OPERATOR, "interlink.status.*"),
        (OPERATOR, ">"),
        (PLUGIN, "interlink.create.*"),
        (PLUGIN, "_INBOX_alpha.>"),
        (PLUGIN, ">"),
    ],
)
def test_the_clusters_users_may_not_hear_either(site: Site, name: str, subject: str) -> None:
    async def attempt() -> None:
        async with raw(site, name) as user:
            await user.hear(subject)
            assert [why for why in user.refused if "for subscription" in why]

    asyncio.run(attempt())


def overlap(one: str, other: str) -> bool:
    """Whether a subject can be meant by both patterns."""
    ones, others = one.split("."), other.split(".")
    for left, right in zip(ones, others):
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return len(ones) == len(others)


@pytest.mark.parametrize("name", ["alpha", *subjects.ROLES])
def test_nobody_may_both_say_and_hear_a_subject(name: str) -> None:
    if name in subjects.ROLES:
        may = permissions.role_permissions("interlink", name)
    else:
        may = permissions.site_permissions("interlink", name, ("a1", "a2"))
    heard = [subject.split()[0] for subject in may.subscribe]
    assert [(s, h) for s in may.publish for h in heard if overlap(s, h)] == []


# --- what they may --------------------------------------------------------------------------------


class Ear:
    """What a link's subscriptions have heard, in order."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def on(self, who: str, link: Link, *subjects: str) -> None:
        async def keep(request: Request) -> None:
            await self._heard.put((who, request.subject))

        for subject in subjects:
            link.subscribe(subject, keep)

    async def next(self, count: int) -> set[tuple[str, str]]:
        return {await asyncio.wait_for(self._heard.get(), 20) for _ in range(count)}


def serving(alpha: Link) -> Link:
    """The link of a site that says what it was told."""

    async def echo(request: Request) -> None:
        asked = await request.message("a1")
        answer = {"heard": len(asked["text"]), "text": TEXTS[asked["wanted"]]}
        await request.answer("a1", {**answer, "at": request.subject})

    async def stream(request: Request) -> None:
        for number in range(subjects.STREAM):
            await alpha.publish_raw(request.reply, b"D%d" % number)

    for pool in ("a1", "a2"):
        alpha.subscribe(f"interlink.create.{pool}", echo, queue=pool)
        alpha.subscribe(f"interlink.delete.{pool}.*", echo, queue=pool)
        alpha.subscribe(f"interlink.query.{pool}", echo, queue=pool)
        alpha.subscribe(f"interlink.logs.{pool}.*", stream, queue=pool)
    return alpha


# What may be large: requests of creates, answers to queries.
@pytest.mark.parametrize(
    ("where", "request_text", "answer_text"),
    [
        *((where, "small", "small") for where in ("create.a1", f"delete.a2.{JOB}", "query.a2")),
        *(("create.a1", text, "small") for text in ("large", "noise")),
        *((f"query.{pool}", "small", text) for pool in ("a1", "a2") for text in ("large", "noise")),
    ],
)
def test_the_plugin_asks_and_the_site_answers(
    site: Site, where: str, request_text: str, answer_text: str
) -> None:
    async def attempt() -> None:
        alpha, plugin = serving(site.link("alpha")), site.link(PLUGIN)
        asked = {"text": TEXTS[request_text], "wanted": answer_text}
        async with started(alpha, plugin):
            answer = await plugin.request("a1", f"interlink.{where}", asked, 60)
        assert answer["heard"] == len(TEXTS[request_text])
        assert (answer["text"], answer["at"]) == (TEXTS[answer_text], f"interlink.{where}")

    asyncio.run(attempt())


def test_a_window_of_a_log_may_have_as_many_messages_as_the_site_may_send(site: Site) -> None:
    async def attempt() -> None:
        alpha, plugin = serving(site.link("alpha")), site.link(PLUGIN)
        async with started(alpha, plugin), plugin.stream() as (inbox, following):
            await plugin.publish_request(f"interlink.logs.a1.{JOB}", inbox, {})
            lines = [await following(20) for _ in range(subjects.STREAM)]
        assert lines == [b"D%d" % number for number in range(subjects.STREAM)]

    asyncio.run(attempt())


def test_a_site_publishes_and_the_cluster_hears(site: Site) -> None:
    async def attempt() -> None:
        ear, alpha = Ear(), site.link("alpha")
        plugin, kueue = site.link(PLUGIN), site.link(KUEUE)
        ear.on("plugin", plugin, *(f"interlink.{k}.*" for k in ("config", "resources", "status")))
        ear.on("kueue", kueue, "interlink.resources.*")
        async with started(alpha, plugin, kueue):
            for subject in ("interlink.config.a1", "interlink.status.a2"):
                await alpha.publish(subject, {})
                assert await ear.next(1) == {("plugin", subject)}
            await alpha.publish("interlink.resources.a1", {})
            heard = await ear.next(2)
        assert heard == {(who, "interlink.resources.a1") for who in ("plugin", "kueue")}

    asyncio.run(attempt())


def test_the_cluster_speaks_and_the_sites_hear(site: Site) -> None:
    async def attempt() -> None:
        ear, alpha, beta = Ear(), site.link("alpha"), site.link("beta")
        plugin, kueue, operator = (site.link(role) for role in subjects.ROLES)
        ear.on("alpha", alpha, "interlink.hello", "interlink.shutdown.a1", "interlink.shutdown.a2")
        ear.on("beta", beta, "interlink.hello", "interlink.shutdown.b")
        async with started(alpha, beta, plugin, kueue, operator):
            for link in (plugin, kueue):
                await link.publish("interlink.hello", {})
                heard = await ear.next(2)
                assert heard == {(who, "interlink.hello") for who in ("alpha", "beta")}
            await operator.publish("interlink.shutdown.a2", {})
            assert await ear.next(1) == {("alpha", "interlink.shutdown.a2")}

    asyncio.run(attempt())


# --- the files ------------------------------------------------------------------------------------


def fresh(folder: Path) -> Path:
    assert nats_site.main(["init", str(folder)]) == 0
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_secrets_are_for_their_owner_and_nowhere_else(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        fresh(tmp_path / "n")
        nats_site.main(["add", "alpha", "a", "--dir", str(tmp_path / "n")])
    finally:
        os.umask(before)
    files = contents(tmp_path / "n")
    seeds = [name for name, text in files.items() if re.search(r"\bSU[A-Z2-7]{56}\b", text)]
    assert sorted(seeds) == [f"credentials/{n}.nkey" for n in ("alpha", KUEUE, OPERATOR, PLUGIN)]
    for name in seeds:
        assert stat.S_IMODE((tmp_path / "n" / name).stat().st_mode) == 0o600
        assert all(
            files[name].strip() not in text for other, text in files.items() if other != name
        )
    assert stat.S_IMODE((tmp_path / "n" / "credentials").stat().st_mode) == 0o700


def test_adding_again_keeps_the_key_and_changes_the_pools(tmp_path: Path) -> None:
    folder = fresh(tmp_path / "n")
    place = ["--dir", str(folder)]
    assert nats_site.main(["add", "alpha", "a", *place]) == 0
    before = contents(folder)
    assert nats_site.main(["add", "alpha", "a", *place]) == 0
    assert contents(folder) == before
    assert nats_site.main(["open", "alpha", *place]) == 0
    assert nats_site.main(["add", "alpha", "c", *place]) == 0
    after = contents(folder)
    assert after["credentials/alpha.nkey"] == before["credentials/alpha.nkey"]
    for account in ("alpha", "cluster"):
        assert "interlink.status.c" in after[f"accounts/{account}.conf"]
        assert '"interlink.status.a"' not in after[f"accounts/{account}.conf"]
    assert nats_site.main(["add", "alpha", "c", "--new-key", *place]) == 0
    assert contents(folder)["credentials/alpha.nkey"] != after["credentials/alpha.nkey"]


def test_a_site_may_have_a_bucket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--dir", str(tmp_path)]
    assert nats_site.main(["init", str(tmp_path)]) == 0
    rights = tmp_path / "accounts" / "alpha.conf"
    for words, has in ((["--bucket"], True), ([], False)):
        assert nats_site.main(["add", "alpha", "a", *words, *folder]) == 0
        told = capsys.readouterr().out
        assert nats_site.main(["open", "alpha", *folder]) == 0
        assert ("$KV.tokens-alpha.*" in rights.read_text()) == has
        assert ("DIRECT.GET.KV_tokens-alpha" in rights.read_text()) == has
        assert ("max_streams" in rights.read_text()) == has
        assert ("nats-site bucket alpha" in told) == has
        capsys.readouterr()
        assert nats_site.main(["list", *folder]) == 0
        assert capsys.readouterr().out.count("alpha") == 1


def test_removing_leaves_nothing(tmp_path: Path) -> None:
    folder = fresh(tmp_path / "n")
    before = contents(folder)
    place = ["--dir", str(folder)]
    assert nats_site.main(["add", "alpha", "a", *place]) == 0
    assert nats_site.main(["remove", "alpha", *place]) == 0
    assert contents(folder) == before


def test_the_list_names_everybody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fresh(tmp_path / "n")
    nats_site.main(["add", "alpha", "a", "b", "--dir", str(folder)])
    capsys.readouterr()
    assert nats_site.main(["list", "--dir", str(folder)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == [PLUGIN, KUEUE, OPERATOR, "alpha"]
    assert [row[2] for row in rows] == ["cluster"] * 3 + ["closed"]
    assert rows[-1][3:] == ["a", "b"]
    assert all(row[1].startswith("U") for row in rows)


def test_the_lines_for_the_site_are_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from submitter.cli.config_file import load

    folder = fresh(tmp_path / "n")
    capsys.readouterr()
    nats_site.main(["add", "alpha", "a", "b", "--dir", str(folder)])
    printed = capsys.readouterr().out
    settings = load(printed[printed.index("nats:\n") :], "printed")
    assert [pool.name for pool in settings.pools] == ["a", "b"]
    assert settings.nats.inbox_prefix == "_INBOX_alpha"
    assert Path(folder / "credentials" / "alpha.nkey").read_text().strip() not in printed


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["add", "plugin", "a"], "plugin: is a name in the cluster"),
        (["add", "cluster", "a"], "cluster: is a name in the cluster"),
        (["add", "x.y", "a"], "site: must be 1 to 63 letters"),
        (["add", "../x", "a"], "site: must be 1 to 63 letters"),
        (["add", "x", "a.>"], "pool: must be 1 to 63 letters"),
        (["add", "x", "*"], "pool: must be 1 to 63 letters"),
        (["add", "x", "taken"], "pool taken: belongs to alpha"),
        (["add", "x", "a", "--connections", "-1"], "--connections: must be at least 1"),
        (["remove", "nobody"], "nobody: is no site here"),
        (["remove", "plugin"], "plugin: is no site here"),
        (["open", "alpha", "nobody"], "nobody: is no site here"),
        (["close", "cluster"], "cluster: is no site here"),
        (["bucket", "alpha"], "alpha: has no bucket"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fresh(tmp_path / "n")
    nats_site.main(["add", "alpha", "taken", "--dir", str(folder)])
    before = contents(folder)
    capsys.readouterr()
    assert nats_site.main([*words, "--dir", str(folder)]) == 1
    assert capsys.readouterr().err.startswith(f"nats-site: {line}")
    assert contents(folder) == before


def test_an_unknown_directory_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nats_site.main(["list", "--dir", str(tmp_path)]) == 1
    (tmp_path / nats_files.REGISTER).write_text("[]")
    assert nats_site.main(["list", "--dir", str(tmp_path)]) == 1
    assert nats_site.main(["init", str(tmp_path)]) == 1
    assert nats_site.main(["init", "/proc/nowhere"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": is ")[2] for line in lines[:3]] == [
        "not set up: begin with nats-site init",
        "not what nats-site has written",
        "set up already: add a site, or take another directory",
    ]
    assert len(lines) == 4


def test_a_skeleton_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "nats-server.conf").write_text("# mine\n")
    fresh(tmp_path)
    assert (tmp_path / "nats-server.conf").read_text() == "# mine\n"


def test_a_removed_site_is_out_as_soon_as_the_server_reloads(tmp_path: Path) -> None:
    made = Site(tmp_path)
    made("add", "alpha", "a")
    made.server.start()

    async def attempt() -> None:
        async with raw(made, "alpha") as alpha:
            await alpha.say("interlink.status.a")
            assert alpha.refused == []
            made("remove", "alpha")
            made.server.reload()
            gone = asyncio.Event()
            alpha.client._closed_cb = lambda: asyncio.sleep(0, gone.set())
            await asyncio.wait_for(gone.wait(), 20)

    try:
        asyncio.run(attempt())
    finally:
        made.server.stop()


@pytest.mark.install
def test_the_script_runs(tmp_path: Path) -> None:
    from tests.support.sources import REPO

    script = str(REPO / "scripts" / "nats-site")
    done = subprocess.run([script, "list"], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 1
    assert b"is not set up: begin with nats-site init" in done.stderr


@pytest.mark.parametrize("words", [["--bucket"], []])
def test_the_servers_own_check_accepts_the_files(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    made = Site(tmp_path)
    conf = made.folder / "nats-server.conf"
    if words:
        conf.write_text(conf.read_text().replace("#jetstream", "jetstream"))
    made("add", "A_1-x", "p", *words)
    capsys.readouterr()
    made("check")
    assert capsys.readouterr().out == f"ok: nats-server takes {conf}\n"


def test_the_check_names_what_is_wrong_or_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Site(tmp_path)
    conf = made.folder / "nats-server.conf"
    text = conf.read_text().replace("max_control_line", "#max_control_line")
    conf.write_text(text + 'cluster { name: x, listen: "127.0.0.1:-1" }\n')
    capsys.readouterr()
    made("check")
    notes = capsys.readouterr().out
    assert f"note: {conf} has no max_control_line: 2KB\n" in notes
    assert f"note: {conf} has no pool_size: -1, in cluster\n" in notes
    assert notes.count("note: ") == 2
    conf.write_text(conf.read_text() + "max_connectoins: 5\n")
    assert nats_site.main(["check", "--dir", str(made.folder)]) == 1
    assert "max_connectoins" in capsys.readouterr().err


# --- new sites, and those that had no account of their own --------------------------------------


def test_a_site_is_announced_and_then_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "n"
    place = ["--dir", str(folder)]
    assert nats_site.main(["init", str(folder)]) == 0
    assert nats_site.main(["add", "alpha", "a", *place]) == 0
    told = capsys.readouterr().out
    assert "Tell the server (of several, all)" in told
    assert f"only then: nats-site open alpha --dir {folder}" in told
    files = contents(folder)
    account = json.loads(f"{{{files['accounts/alpha.conf']}}}")["alpha"]
    assert set(account) == {"limits"}
    assert "interlink.create.a" not in files["accounts/cluster.conf"]
    assert nats_site.main(["open", "alpha", *place]) == 0
    files = contents(folder)
    assert "interlink.create.a" in files["accounts/cluster.conf"]
    assert {"limits", "users", "exports", "imports"} == set(
        json.loads(f"{{{files['accounts/alpha.conf']}}}")["alpha"]
    )
    assert nats_site.main(["close", "alpha", *place]) == 0
    assert json.loads(f"{{{contents(folder)['accounts/alpha.conf']}}}")["alpha"] == account


def made_before(folder: Path) -> Site:
    """A directory as nats-site wrote it when all users shared one account."""
    made = Site(folder)
    made("add", "alpha", "a1", "a2")
    register = json.loads((made.folder / nats_files.REGISTER).read_text())
    keys = {name: user[0] for name, user in register["users"].items()}
    register["users"] = {name: user[:3] for name, user in register["users"].items()}
    (made.folder / nats_files.REGISTER).write_text(json.dumps(register))
    for path in [*(made.folder / "accounts").iterdir(), made.folder / "accounts.conf"]:
        path.unlink()
    conf = made.folder / "nats-server.conf"
    text = conf.read_text().replace("authorization { timeout: 2 }\n", "")
    conf.write_text(text.replace('include "accounts.conf"', 'include "users.conf"'))
    may = permissions.role_permissions("interlink", PLUGIN)
    users = [
        accounts.user_entry(keys[PLUGIN], may._replace(publish=may.publish[:-1], answers=1)),
        accounts.user_entry(
            keys["alpha"], permissions.guest_permissions("interlink", "alpha", ("a1", "a2"))
        ),
    ]
    (made.folder / "users").mkdir()
    whole = {"authorization": {"timeout": 5, "users": users}}
    (made.folder / "users.conf").write_text(json.dumps(whole)[1:-1])
    return made


def test_sites_of_one_account_keep_working_and_are_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = made_before(tmp_path)
    made.server.start()
    seed = Path(made.seed_file("alpha")).read_text()

    async def attempt() -> None:
        alpha, plugin = serving(made.link("alpha")), made.link(PLUGIN)

        async def ask(kind: str, sent: str, wanted: str) -> None:
            asked = {"text": TEXTS[sent], "wanted": wanted}
            answer = await plugin.request("a1", f"interlink.{kind}.a1", asked, 60)
            assert (answer["heard"], answer["text"]) == (len(TEXTS[sent]), TEXTS[wanted])

        async with started(alpha, plugin):
            await ask("create", "small", "small")
            for words in (["write"], ["open", "alpha"]):
                links = [plugin, alpha] if words == ["write"] else [alpha]
                before = [link.connections for link in links]
                made(*words)
                made.server.reload()
                for link, count in zip(links, before):
                    while link.connections == count or not link.is_connected:
                        await asyncio.sleep(0.02)
                await ask("create", "noise", "small")  # in parts, both ways
                await ask("query", "small", "noise")

    try:
        asyncio.run(attempt())
    finally:
        made.server.stop()
    assert "nats-site open alpha" in capsys.readouterr().out
    assert Path(made.seed_file("alpha")).read_text() == seed
    assert not (made.folder / "users").exists()


def test_commands_at_the_same_time_do_not_undo_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "nats"
    assert nats_site.main(["init", str(folder)]) == 0
    names = [f"site{number}" for number in range(12)]
    command = (sys.executable, "-m", "templates.cli.nats_site", "add", "--dir", str(folder))
    running = [
        subprocess.Popen([*command, name, name], stdout=subprocess.DEVNULL) for name in names
    ]
    assert [process.wait() for process in running] == [0] * len(names)
    register = json.loads((folder / "nats-site.json").read_text())
    assert set(names) < set(register["users"])
    text = (folder / "accounts.conf").read_text()
    assert [name for name in names if f"accounts/{name}.conf" not in text] == []
