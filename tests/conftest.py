"""What holds for every test."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.nats_server import NatsServer

# Its asserts are tests, though no name of a test module says so.
pytest.register_assert_rewrite("tests.unit.submitter.conformance")

# How long an example takes says more of the machine than of what it tries.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Who starts the tests in the background of a shell has them ignore Ctrl-C, and with them whatever
# they start: some tests are about just that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server for tests that do it no harm; each worker of pytest-xdist has one."""
    server = NatsServer(tmp_path_factory.mktemp("nats")).start()
    yield server
    server.stop()
