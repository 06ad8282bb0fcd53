"""What a login node loads: not what translates pods, which is done in the cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from submitter.backends.registry import BACKENDS

REPO = Path(__file__).resolve().parents[3]
TRANSLATION = {
    "jinja2",
    "templates.script.containers",
    "templates.translation.build",
    "templates.manifests.objects",
    "templates.script.job_script",
    "templates.resolve.volumes",
}
READERS = (
    "templates.protocol.messages",
    "templates.protocol.publications",
    "templates.job.directory",
)
PROGRAM = (
    "submitter.pool.agent",
    "submitter.jobs.lifecycle",
    "submitter.main",
    "submitter.__main__",
)


def loaded(*modules: str) -> set[str]:
    """Return what a fresh interpreter has loaded after these."""
    imports = "".join(f"import {module}; " for module in modules)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {imports}print(*sys.modules)"],
        cwd=REPO,
        check=True,
        capture_output=True,
        text=True,
    )
    return {*done.stdout.split()}


def test_whoever_reads_messages_does_not_load_the_translation() -> None:
    found = loaded(*READERS)
    assert {*READERS} <= found
    assert not found & TRANSLATION


def test_the_submitter_does_not_load_the_translation() -> None:
    found = loaded(*PROGRAM)
    assert {*PROGRAM} <= found
    assert not found & TRANSLATION


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_does_not_load_the_translation(backend: str) -> None:
    """But for jinja2: HTCondor's writes a script of its own for nodes without the pool's files."""
    module = BACKENDS[backend].partition(":")[0]
    found = loaded(module)
    assert module in found
    expected = {"jinja2"} if backend == "htcondor" else set()
    assert found & TRANSLATION == expected
