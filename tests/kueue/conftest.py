"""Every test here needs a bed of scripts/bed: one for all of them that want the same Kueue.

``bed`` has the newest Kueue. A test marked ``both_kueues`` also runs with the oldest one that we
work with, when it has been built (``scripts/bed build kueue-0.14``; ``scripts/test all`` does it).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.kueue import plugin_account
from tests.support.kueue_bed import NEW, OLD, KueueBed, has, running
from tests.support.kueue_operator import PASSWORD, USER, Operator, Pools, World, install
from tests.support.nats_server import NatsServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kueue)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bed" not in metafunc.fixturenames:
        return
    both = any(metafunc.definition.iter_markers("both_kueues")) and has(f"kueue-{OLD}")
    metafunc.parametrize("bed", [NEW, OLD] if both else [NEW], indirect=True, scope="session")


@pytest.fixture(scope="session")
def bed(request: pytest.FixtureRequest) -> Iterator[KueueBed]:
    """A bed for the whole session; what a test creates in it is in a namespace of its own."""
    with running(f"tests-{os.getpid()}", request.param) as found:
        yield found


@pytest.fixture(scope="session")
def operator(
    bed: KueueBed, nats: NatsServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """The operator, under the ServiceAccount and the rights of the chart; it has to stay alive."""
    folder = tmp_path_factory.mktemp("operator")
    (folder / "password").write_text(PASSWORD)
    own = {"servers": [nats.url], "user": USER, "password_file": str(folder / "password")}
    found = Operator(folder, install(bed), nats=own).start()
    yield found
    if found.process is not None:
        assert found.process.poll() is None, found.words()
        assert found.stop() == 0
    assert "Traceback" not in found.words(), found.words()


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A NATS server, which asks for a password."""
    users = [{"user": USER, "password": PASSWORD}]
    server = NatsServer(tmp_path_factory.mktemp("nats") / "server", authorization={"users": users})
    server.start()
    yield server
    server.stop()


@pytest.fixture
def world(bed: KueueBed, operator: Operator, nats: NatsServer) -> Iterator[World]:
    """A name and a subject of this test's own; all that it makes goes with it."""
    name = f"t{uuid.uuid4().hex[:6]}"
    pools = Pools(nats, name)
    found = World(bed, operator, pools, name)
    found.url = f"nats://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{nats.port}"
    yield found
    pools.close()
    found.close()


@pytest.fixture(scope="session")
def account(bed: KueueBed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The plugin's settings for its account here, which may do nothing yet."""
    return plugin_account.settings(bed, tmp_path_factory.mktemp("account"))


@pytest.fixture(scope="session")
def orphans(bed: KueueBed, account: dict[str, Any]) -> dict[str, Any]:
    """With the rights of that account."""
    bed.apply(plugin_account.rights())
    return account
