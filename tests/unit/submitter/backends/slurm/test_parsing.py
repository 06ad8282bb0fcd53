"""What Slurm's programs print, as values. The texts were taken from a real site (Slurm 26.05)."""

from __future__ import annotations

import pytest

from submitter.backends.slurm import parsing
from submitter.backends.slurm.capacity import is_usable, max_jobs
from submitter.backends.slurm.options import load
from submitter.backends.slurm.parsing import Row

NAME = "aa-9f37a62e-cbbc-4fb7-9eea-f41de9d33569"


def fixed(*fields: tuple[str, int]) -> str:
    return "".join(text.ljust(width) for text, width in fields) + "\n"


def test_the_queue() -> None:
    reason = "ReqNodeNotAvail, UnavailableNodes:n1"
    line = fixed(("34", 24), ("PENDING", 20), ("1", 12), (NAME, 80), (reason, 100))
    said = "slurm_load_jobs warning\n" + line + "35 cut off"
    assert list(parsing.parse_queue(said)) == [Row("34", NAME, "PENDING", reason, 1)]


def test_jobs_that_have_ended() -> None:
    line = fixed(
        ("1", 24), ("FAILED", 20), ("0", 12), (NAME, 80), ("RaisedSignal:15(Terminated)", 100),
        ("0:15", 20), ("1795039276", 32), ("1795039270", 32), ("1-00:01:00", 20),
    )  # fmt: skip
    times = (1795039276, 1795039270, 86460)
    assert list(parsing.parse_past(line)) == [
        Row("1", NAME, "FAILED", "RaisedSignal:15(Terminated)", 0, "0:15", *times)
    ]


def test_accounting() -> None:
    said = (
        "1|aa|FAILED|0:15|1795039276|1795039270|00:10:00\n"
        "2|bb|CANCELLED by 1000|0:0|Unknown|Unknown|Partition_Limit\n"
        "2.batch|batch|X|0:0|1|1|\n"
    )
    assert list(parsing.parse_accounting(said)) == [
        Row("1", "aa", "FAILED", "", 0, "0:15", 1795039276, 1795039270, 600),
        Row("2", "bb", "CANCELLED by 1000", exit_code="0:0"),
    ]


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("34\n", "34"),
        ("34;cluster\n", "34"),
        ("welcome to the site\n34\n", "34"),
        ("Submitted batch job 34\n", "34"),
        ("", None),
        ("allocated 3 nodes\n", None),
    ],
)
def test_the_number_of_a_submitted_job(said: str, number: str) -> None:
    assert parsing.parse_job_number(said) == number


@pytest.mark.parametrize(
    ("text", "code"), [("7:0", 7), ("0:15", 143), ("0:0", 0), ("", 0), ("0:53", 181), ("256:0", 0)]
)
def test_exit_codes(text: str, code: int) -> None:
    assert parsing.parse_exit_code(text) == code


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600),
        ("10:30", 630),
        ("1:00:00", 3600),
        ("2-0", 172800),
        ("1-2:3:4", 93784),
        ("UNLIMITED", 0),
        ("soon", None),
        ("1:2:3:4", None),
        ("", None),
    ],
)
def test_time_limits(text: str, seconds: int) -> None:
    assert parsing.parse_time_limit(text) == seconds


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("(null)", {}),
        ("gpu:a100:2", {"gpu:a100": 2}),
        ("gpu:a100:0(IDX:N/A)", {"gpu:a100": 0}),
        ("gpu:a100:4(S:0-1),shard:8,gpu:1", {"gpu:a100": 4, "shard": 8, "gpu": 1}),
    ],
)
def test_generic_resources(text: str, counts: dict[str, int]) -> None:
    assert parsing.parse_gres_counts(text) == counts


def test_nodes_are_counted_once() -> None:
    line = fixed(
        ("n3", 80), ("mixed", 32), ("2/6/0/8", 40), ("8000", 20), ("100", 20),
        ("gpu:a100:2", 300), ("gpu:a100:1(IDX:0)", 300),
    )  # fmt: skip
    found = parsing.parse_nodes(line + line)
    assert list(found) == ["n3"]
    assert found["n3"][2:] == (8, 6, 8000, 100, {"gpu:a100": 2}, {"gpu:a100": 1})


def test_what_our_jobs_hold() -> None:
    trees = "cpu=3,mem=1G,node=1,billing=3,gres/gpu=1,gres/gpu:a100=1"
    found = parsing.parse_used(fixed(("3", 16), (trees, 300)) * 2)
    assert found == (6, 2 * 2**30, {"gpu": 2, "gpu:a100": 2})


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("idle", True),
        ("mixed-", True),
        ("idle~", True),
        ("allocated+", True),
        ("idle*", False),
        ("drained", False),
        ("draining", False),
        ("down*", False),
        ("maint", False),
        ("", False),
    ],
)
def test_which_nodes_count(state: str, usable: bool) -> None:
    assert is_usable(state) is usable


def test_limits_on_the_number_of_jobs() -> None:
    users = parsing.parse_limits(
        "Cluster|Account|User|MaxJobs|MaxSubmit|QOS|Def QOS\n"
        "tests|lab|alice||40|normal,small|normal\n"
    )
    kinds = parsing.parse_limits("Name|GrpJobs|MaxJobsPU|MaxSubmitPU\nnormal|||\nsmall||2|5\n")
    assert max_jobs(users, kinds, load({}, "p"), 1000) == 40
    small = load({"flavors": [{"name": "s", "qos": "small"}]}, "p")
    assert max_jobs(users, kinds, small, 1000) == 2
    assert max_jobs([], [], small, 1000) == 1000
