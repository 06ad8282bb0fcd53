"""What a pool offers, from the slots that its collector knows: here one that says anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from submitter.backends.htcondor.capacity import read_capacity
from submitter.backends.htcondor.commands import HTCondorCommands
from submitter.backends.htcondor.options import load
from submitter.backends.htcondor.parsing import Ad

WHOLE = {
    "PartitionableSlot": True,
    "State": "Unclaimed",
    "Cpus": 2,
    "Memory": 100,
    "GPUs": 1,
    "TotalSlotCpus": 8,
    "TotalSlotMemory": 1000,
    "TotalSlotGPUs": 2,
}
TAKEN = {**WHOLE, "PartitionableSlot": False, "State": "Claimed"}
OURS = [
    Ad("1.0", "a", 2, {"RequestCpus": 3, "RequestMemory": 10, "RequestGPUs": 1}),
    Ad("2.0", "b", 1, {"RequestCpus": 50, "RequestMemory": 50}),
]


def offered(folder: Path, slots: list[dict[str, Any]], **options: Any) -> dict[str, str]:
    said = folder / "said"
    said.write_text(json.dumps(slots) if slots else "")
    program = folder / "condor_status"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{folder}/asked\ncat {said}\n")
    program.chmod(0o755)
    raw = {"programs": {"condor_status": str(program)}, **options}
    site = load(raw, "p")
    return read_capacity(
        HTCondorCommands(site, "/nowhere"), site, OURS if site.capacity == "free" else []
    )


def test_all_that_there_is(tmp_path: Path) -> None:
    expected = {"cpu": "16", "memory": str(2000 * 1024**2), "nvidia.com/gpu": "4", "pods": "10000"}
    assert offered(tmp_path, [WHOLE, TAKEN]) == expected
    assert 'SlotType isnt "Dynamic"' in (tmp_path / "asked").read_text().splitlines()


def test_what_is_free_and_what_our_own_jobs_have(tmp_path: Path) -> None:
    expected = {"cpu": "5", "memory": str(110 * 1024**2), "nvidia.com/gpu": "2", "pods": "7"}
    assert offered(tmp_path, [WHOLE, TAKEN], capacity="free", pods=7) == expected


def test_a_constraint_and_other_resources(tmp_path: Path) -> None:
    slot = {**WHOLE, "TotalSlotFPGAs": 3}
    options = {"collector_constraint": "HasCvmfs", "resources": {"example.org/fpga": "FPGAs"}}
    assert offered(tmp_path, [slot], **options)["example.org/fpga"] == "3"
    asked = (tmp_path / "asked").read_text()
    assert 'SlotType isnt "Dynamic" && (HasCvmfs)' in asked
    assert "TotalSlotFPGAs" in asked


def test_a_collector_that_knows_nothing(tmp_path: Path) -> None:
    assert offered(tmp_path, [])["cpu"] == "0"
