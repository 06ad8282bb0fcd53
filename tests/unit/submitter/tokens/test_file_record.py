"""What submitters share, wherever they keep it: real files, a real NATS server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import nats as nats_py
import pytest

from submitter.common.nats_request import AskNats, ask_through, not_connected
from submitter.tokens.file_record import FileRecord, SharedRecord
from submitter.tokens.nats_record import BucketRecord
from templates.nats import permissions
from templates.nats.connection import Link
from templates.nats.options import LinkSettings
from templates.nats.requests import Reply
from tests.support.nats_server import NatsServer
from tests.support.nats_users import Site

BUCKET = permissions.bucket_of("alpha")


class Nats:
    """The server of nats-site with buckets for two sites, and the connections of sites."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder)
        conf = self.site.folder / "nats-server.conf"
        conf.write_text(conf.read_text() + f'jetstream {{ store_dir: "{folder}/store" }}\n')
        self.site("add", "alpha", "a", "--bucket")
        self.site("add", "gamma", "c", "--bucket")
        self.site("add", "beta", "b")
        self.server = self.site.server.start()
        for name in ("alpha", "gamma"):
            self.site("bucket", name, "--server", self.server.url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._links: list[Link] = []

    def ask(self, site: str) -> AskNats:
        """As a submitter of that site asks."""

        async def begin() -> tuple[Link, AskNats]:
            link = self.site.link(site)
            await link.start()
            assert await link.connected(20)
            return link, ask_through(link)

        link, ask = asyncio.run_coroutine_threadsafe(begin(), self._loop).result(30)
        self._links.append(link)
        return ask

    def close(self) -> None:
        for link in self._links:
            asyncio.run_coroutine_threadsafe(link.stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self.server.stop()


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    made = Nats(tmp_path_factory.mktemp("nats"))
    yield made
    made.close()


Make = Callable[[], SharedRecord]


@pytest.fixture(params=["file", "bucket"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Each time another submitter's view of one record, which nobody has written to."""
    if request.param == "file":
        return lambda: FileRecord(str(tmp_path / "record"))
    ask = request.getfixturevalue("nats").ask("alpha")
    return lambda: BucketRecord(ask, BUCKET, tmp_path.name)


def test_what_one_writes_the_others_read(make: Make) -> None:
    one, other = make(), make()
    content, version = one.read()
    assert content == b""
    written = one.swap(version, b"\x00 first \xff")
    assert written is not None
    assert other.read() == (b"\x00 first \xff", written)
    assert other.swap(written, b"second") == make().read()[1]
    assert one.read()[0] == b"second"


def test_who_has_not_seen_the_last_version_changes_nothing(make: Make) -> None:
    one, other = make(), make()
    empty = one.read()[1]
    first = one.swap(empty, b"first")
    assert other.swap(empty, b"late") is None
    assert first is not None
    second = one.swap(first, b"second")
    assert other.swap(first, b"late") is None
    assert one.read() == (b"second", second)


def test_of_many_at_once_one_is_first(make: Make) -> None:
    several = [make() for _ in range(8)]
    for round_ in range(5):
        version = several[0].read()[1]
        gate, taken = threading.Barrier(len(several)), []

        contents = [f"{round_} {number}" for number in range(len(several))]

        def take(number: int, content: str, version: str, gate: Any, taken: Any) -> None:
            gate.wait()
            if several[number].swap(version, content.encode()) is not None:
                taken.append(content)

        threads = [
            threading.Thread(target=take, args=[number, content, version, gate, taken])
            for number, content in enumerate(contents)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
        assert several[0].read()[0] == taken[0].encode()


# --- NATS -----------------------------------------------------------------------------------------


def test_another_site_reaches_nothing_of_it(nats: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("submitter.common.nats_request.TIMEOUT_S", 0.5)
    BucketRecord(nats.ask("alpha"), BUCKET, "k").swap("0", b"hush")
    stranger = BucketRecord(nats.ask("beta"), BUCKET, "k")
    with pytest.raises(OSError, match="no answer within") as caught:
        stranger.read()
    assert caught.value.filename == f"the bucket {BUCKET}"
    with pytest.raises(OSError, match="no answer within"):
        stranger.swap("0", b"theirs")
    assert BucketRecord(nats.ask("alpha"), BUCKET, "k").read()[0] == b"hush"


def test_a_site_cannot_make_buckets_or_change_its_own(
    nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who could make a stream could have it keep the messages of all others."""
    monkeypatch.setattr("submitter.common.nats_request.TIMEOUT_S", 0.5)
    ask = nats.ask("alpha")
    for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "INFO", "MSG.DELETE", "MSG.GET"):
        where = f"$JS.API.STREAM.{verb}.KV_{BUCKET}"
        with pytest.raises(Exception, match="no answer within"):
            ask(where, json.dumps({"name": f"KV_{BUCKET}"}).encode(), {})


# Where a site could have the store write: records of others, and requests and publications of all.
ELSEWHERE = [
    permissions.key_of_bucket(BUCKET, "theirs"),
    permissions.request_to_bucket(BUCKET, "theirs"),
    f"$JS.API.STREAM.DELETE.KV_{BUCKET}",
    "interlink.shutdown.b",
    "interlink.create.a",
    "interlink.hello",
    "interlink.resources.c",
    "_INBOX_alpha.x",
    "_INBOX_plugin.x",
]


def test_a_bucket_answers_into_its_own_account_only(nats: Nats) -> None:
    """JetStream publishes its answer wherever a question says, as if nobody had said it."""
    record = BucketRecord(nats.ask("alpha"), BUCKET, "theirs")
    version = record.swap(record.read()[1], b"hush")
    own = permissions.bucket_of("gamma")
    asked = (
        permissions.key_of_bucket(own, "own"),
        permissions.request_to_bucket(own, "own"),
    )
    heard: list[str] = []

    async def attempt() -> None:
        async def keep(message: Any) -> None:
            heard.append(message.subject)

        clients = {
            name: await nats_py.connect(nats.server.url, nkeys_seed=nats.site.seed_file(name))
            for name in ("alpha", "beta", "gamma", "plugin")
        }
        for name, subject in (
            ("alpha", "interlink.create.a a"),
            ("alpha", "interlink.hello"),
            ("alpha", "_INBOX_alpha.>"),
            ("beta", "interlink.shutdown.b"),
            ("beta", "interlink.hello"),
            ("plugin", "_INBOX_plugin.>"),
        ):
            where, _, queue = subject.partition(" ")
            await clients[name].subscribe(where, queue=queue, cb=keep)
            await clients[name].flush()
        for where in asked:
            for reply in ELSEWHERE:
                await clients["gamma"].publish(where, b"{}", reply=reply)
        await clients["gamma"].flush()
        # What the store was asked before is answered now.
        inbox = f"{permissions.inbox_of('gamma')}.x"
        answers = await clients["gamma"].subscribe(f"{permissions.inbox_of('gamma')}.>")
        for where in asked:
            await clients["gamma"].publish(where, b"{}", reply=inbox)
            await answers.next_msg(20)
        for client in clients.values():
            await client.flush()
            await client.close()

    asyncio.run(attempt())
    assert heard == []
    assert record.read() == (b"hush", version)


def test_a_site_that_was_closed_has_its_bucket_again(nats: Nats) -> None:
    record = BucketRecord(nats.ask("gamma"), permissions.bucket_of("gamma"), "kept")
    version = record.swap("0", b"hush")
    for number, command in enumerate(("close", "open"), 1):
        nats.site(command, "gamma")
        nats.server.reload()
        while nats.server.log().count("Reloaded server configuration") < number:
            time.sleep(0.02)
    again = BucketRecord(nats.ask("gamma"), permissions.bucket_of("gamma"), "kept")
    assert again.read() == (b"hush", version)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_bucket_that_is_not_there(tmp_path: Path, keeps: bool) -> None:
    options = {"jetstream": {"store_dir": str(tmp_path / "store")}} if keeps else {}
    server = NatsServer(tmp_path / "nats", **options).start()

    async def attempt() -> None:
        link = Link(LinkSettings((server.url,)), "interlink")
        await link.start()
        assert await link.connected(20)
        record = BucketRecord(ask_through(link), BUCKET, "k")
        for attempt in (record.read, lambda: record.swap("0", b"content")):
            with pytest.raises(OSError, match="there is no such bucket"):
                await asyncio.to_thread(attempt)
        server.stop()
        with pytest.raises(OSError, match="connection"):
            await asyncio.to_thread(record.read)
        await link.stop()

    try:
        asyncio.run(attempt())
    finally:
        server.stop()


def test_without_a_connection(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no connection to NATS was made"):
        BucketRecord(not_connected, BUCKET, "k").read()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"x", "answers what is no answer"),
        (b"[]", "answers what is no answer"),
        (b"{}", "answers what is no answer"),
        (b'{"seq": "1"}', "answers what is no answer"),
        (b'{"error": {"err_code": 10059, "description": "stream not found"}}', "stream not found"),
        (b'{"error": {}}', "answers what is no answer"),
        (b'{"error": "x"}', "answers what is no answer"),
    ],
)
def test_what_no_server_should_answer_to_a_value(answer: bytes, words: str) -> None:
    record = BucketRecord(lambda where, payload, headers: Reply(answer, {}), BUCKET, "k")
    with pytest.raises(OSError, match=words):
        record.swap("1", b"content")


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "answers what is no answer"),
        ({"Nats-Sequence": "-1"}, "answers what is no answer"),
        ({"Status": "408", "Description": "Bad Request"}, "Bad Request"),
    ],
)
def test_what_no_server_should_answer_to_a_question(headers: dict[str, str], words: str) -> None:
    record = BucketRecord(lambda where, payload, _: Reply(b"content", headers), BUCKET, "k")
    with pytest.raises(OSError, match=words):
        record.read()
