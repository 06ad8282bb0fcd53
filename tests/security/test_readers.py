"""Differential fuzzing: both ways to read take bytes for the same, or refuse them in one line.

``FUZZ_COUNT`` mutants of each reader's inputs are tried, the same each time (``FUZZ_SEED`` makes
others), after all that was ever found wrong: the files in ``corpus/``. What fails is put there.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.security.byte_mutations import mutants
from tests.security.readers import Read, Reader, all_readers

CORPUS = Path(__file__).parent / "corpus"
COUNT = int(os.environ.get("FUZZ_COUNT", "500"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
LONGEST_ERROR = 750  # a field of 300 and a reason of 400

pytestmark = pytest.mark.security
READERS = {reader.name: reader for reader in all_readers()}


def outcome(read: Read, raw: bytes, errors: tuple[type[Exception], ...]) -> Any:
    """What was read; of what is refused, only that it is: the second way names other places."""
    try:
        return read(raw)
    except errors as error:
        line = str(error)
        assert line.isprintable(), f"an error of several lines: {line!r}"
        assert len(line) <= LONGEST_ERROR, f"an error of {len(line)} characters: {line[:200]}"
        return "refused"


def check(reader: Reader, raw: bytes) -> None:
    first = outcome(reader.read, raw, reader.errors)
    second = outcome(reader.second, raw, reader.errors)
    assert repr(first) == repr(second), f"read as {first!r:.300}, the other way as {second!r:.300}"


def keep(reader: Reader, raw: bytes) -> Path:
    path = CORPUS / reader.name / hashlib.sha256(raw).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("name", READERS)
def test_its_own_inputs_are_taken(name: str) -> None:
    for seed in READERS[name].seeds:
        assert outcome(READERS[name].read, seed, READERS[name].errors) != "refused"


@pytest.mark.parametrize("name", READERS)
def test_what_was_once_found(name: str) -> None:
    for path in sorted((CORPUS / name).glob("*")):
        check(READERS[name], path.read_bytes())


@pytest.mark.parametrize("name", READERS)
def test_mutants(name: str) -> None:
    reader = READERS[name]
    for raw in mutants(reader.seeds, COUNT, SEED):
        try:
            check(reader, raw)
        except BaseException as error:
            error.add_note(f"the input is kept: {keep(reader, raw)}")
            raise
