"""The same pod asked for twice at once; created and deleted at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib.interlink import Answer, Plugin
from tests.support.system import System, request_of, running

pytestmark = pytest.mark.faults
ROUNDS = 30


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("races")
    with running(folder, submitters=2, workers=2) as system:
        yield system


def test_the_same_create_at_once_runs_once(system: System, tmp_path: Path) -> None:
    for number in range(ROUNDS):
        request = request_of(f"echo run >>{tmp_path}/{number}")
        answers: list[object] = []

        def create(request: dict[str, object] = request, answers: list[object] = answers) -> None:
            with Plugin("127.0.0.1", system.port) as plugin:
                answers.append(plugin.create(request))

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [answers[0]] * 4
        assert [end["exitCode"] for end in system.ended(request["pod"])] == [0]
        assert (tmp_path / str(number)).read_text() == "run\n"


def test_a_create_and_a_delete_at_once_leave_nothing(system: System) -> None:
    pods = []
    for _ in range(ROUNDS):
        request = request_of("sleep 60")
        pods.append(request["pod"])

        def create(request: dict[str, object] = request) -> None:
            with Plugin("127.0.0.1", system.port) as plugin:
                try:
                    plugin.create(request)
                except Answer as refused:
                    assert "deleted" in refused.text

        creating = threading.Thread(target=create)
        creating.start()
        with Plugin("127.0.0.1", system.port) as plugin:
            plugin.delete(request["pod"])
        creating.join()
    for pod in pods:
        system.until(lambda pod=pod: not system.directory(pod).exists(), "it is removed")
        system.until(lambda pod=pod: system.status(pod) is None, "it is forgotten")
