"""What condor_submit is told about jobs, and what it is never told, whatever pods say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from submitter.backends.htcondor import submit_file
from submitter.backends.htcondor.options import load
from submitter.backends.htcondor.request import ANNOTATIONS, build_commands, build_description
from submitter.common.errors import Forbidden
from submitter.config.settings import Pool
from templates.common.errors import ConfigError
from templates.job.model import Job
from templates.site.build_config import BuildConfig, Runtime, Script
from tests.unit.submitter.rig import job_of

ALL = {"pod_annotations": ["*"], "pod_attributes": ["Project*"]}


def pool_of(rerun: bool = False, **options: Any) -> Pool:
    build = BuildConfig(runtime=Runtime(name="host"), script=Script(rerun=rerun))
    return Pool(name="site", directory="/shared/pool", build=build, options=options)


def asked(job: Job, rerun: bool = False, **options: Any) -> dict[str, str]:
    pool = pool_of(rerun, **options)
    return build_commands(job, pool, load(pool.options, "site"))


def written(job: Job, **options: Any) -> dict[str, str]:
    """The description's lines by their names; the last one is what queues the job."""
    pool = pool_of(**options)
    text = build_description(job, f"/shared/pool/jobs/{job.name}", pool, load(options, "site"))
    *lines, last = text.split("\n")[:-1]
    assert last == "queue"
    found = dict(line.split(" = ", 1) for line in lines)
    assert len(found) == len(lines), "a command stands there twice"
    return found


def annotated(**annotations: str) -> Job:
    named = {f"condor/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return job_of()._replace(annotations=named)


def test_amounts_in_the_units_of_htcondor() -> None:
    resources = {"requests": {"cpu": "1500m", "memory": "300Mi", "nvidia.com/gpu": "2"}}
    resources["limits"] = {"nvidia.com/gpu": "2"}
    found = asked(job_of(resources=resources), disk="10Mi")
    assert found["request_cpus"] == "2"
    assert found["request_memory"] == "300"  # MiB
    assert found["request_disk"] == "10240"  # KiB
    assert found["request_gpus"] == "2"
    little = asked(job_of(resources={"requests": {"cpu": "1m"}})._replace(memory_bytes=1))
    assert (little["request_cpus"], little["request_memory"]) == ("1", "1")


def test_a_resource_that_the_site_has_not() -> None:
    job = job_of(resources={"limits": {"example.org/fpga": "1"}})
    with pytest.raises(Forbidden, match=r"asks for .*fpga, and options"):
        asked(job)
    assert asked(job, resources={"example.org/fpga": "FPGAs"})["request_FPGAs"] == "1"


def test_time_limits() -> None:
    found = asked(job_of(activeDeadlineSeconds=100, grace=20), wall_time_margin_s=30)
    assert found["allowed_job_duration"] == found["MY.MaxRuntime"] == "150"
    assert "allowed_job_duration" not in asked(job_of())
    assert written(job_of(grace=20))["job_max_vacate_time"] == "35"


def test_what_a_job_is_cannot_be_changed() -> None:
    job = annotated(requirements="Memory > 1")
    found = written(job, **ALL)
    assert found["MY.InterlinkJob"] == f'"{job.name}"'
    assert found["requirements"] == "(Memory > 1) && NumJobStarts == 0"
    assert found["initialdir"] == f"/shared/pool/jobs/{job.name}"
    assert "Secret" not in str(found)
    for name in submit_file.NEVER:
        with pytest.raises(ConfigError, match=f"commands.{name}: cannot be changed"):
            load({"commands": {name: "x"}}, "site")


def test_jobs_that_may_start_again() -> None:
    assert asked(job_of(), rerun=True)["requirements"] == "true"
    assert asked(job_of())["requirements"] == "NumJobStarts == 0"
    apart = asked(job_of(), shared=False)["requirements"]
    assert apart.startswith("NumJobStarts == 0 && (NumShadowStarts ?: 0) == (NumVacatesByReason.")
    assert submit_file.find_expression_error(apart) == ""


def test_annotations() -> None:
    said = {"rank": "Mips", "accounting_group": "cms.prod", "priority": "-5", "disk": "1Ki"}
    found = asked(annotated(**said, attributes='Project1 = "x"\n\nProject2 = 1 + 2'), **ALL)
    assert found["rank"] == "(Mips)"
    assert found["accounting_group"] == "cms.prod"
    assert found["priority"] == "-5"
    assert found["request_disk"] == "1"
    assert (found["MY.Project1"], found["MY.Project2"]) == ('("x")', "(1 + 2)")


def test_the_site_speaks_where_the_pod_does_not() -> None:
    site = {"rank": "KFlops", "accounting_group": "all", "requirements": "HasCvmfs"}
    found = asked(annotated(rank="Mips"), **site)
    assert found["rank"] == "(Mips)"
    assert found["accounting_group"] == "all"
    assert found["requirements"] == "(HasCvmfs) && NumJobStarts == 0"
    assert asked(job_of(), commands={"+Big": "true"})["MY.Big"] == "true"


@pytest.mark.parametrize("name", ["requirements", "attributes"])
def test_what_a_site_has_not_allowed(name: str) -> None:
    with pytest.raises(Forbidden, match=f"pod_annotations of this pool does not allow {name}"):
        asked(annotated(**{name: "x = 1"}))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"requirements": "true) || (true"}, "[)] closes what was not opened"),
        ({"requirements": "(true"}, "[(] is not closed"),
        ({"requirements": "[a(b]"}, "] closes what was not opened"),
        ({"requirements": "true // "}, "// cannot be used there"),
        ({"requirements": "true /* "}, "/[*] cannot be used there"),
        ({"requirements": '"unclosed'}, '" cannot be used there'),
        ({"requirements": "x\nqueue 100"}, "cannot be printed"),
        ({"requirements": "$ENV(SECRET)"}, "[$] cannot be used there"),
        ({"requirements": 'x == "$(SECRET)"'}, "[$] cannot be used there"),
        ({"requirements": "a; b"}, "; cannot be used there"),
        ({"requirements": "true \\"}, "backslash"),
        ({"requirements": " "}, "is empty"),
        ({"requirements": "x" * 10_001}, "is longer than"),
        ({"rank": "true) || (true"}, "closes what was not opened"),
        ({"accounting_group": "a b"}, "accounting-group: a b is none"),
        ({"accounting_group": "a\nqueue"}, "is none"),
        ({"priority": "high"}, "priority: high is none"),
        ({"disk": "much"}, "the annotation disk"),
        ({"attributes": "Owner = 1"}, "does not allow it"),
        ({"attributes": "Project"}, "is not Name = expression"),
        ({"attributes": "Project x = 1"}, "is not Name = expression"),
        ({"attributes": "Project = $$(Secret)"}, "[$] cannot be used there"),
        ({"flags": "-x"}, "the annotation flags is not known here"),
    ],
)
def test_hostile_annotations(said: dict[str, str], why: str) -> None:
    with pytest.raises(Forbidden, match=why):
        asked(annotated(**said), **ALL)


def test_what_stands_in_quotes_is_left_alone() -> None:
    harmless = "regexp(\"(\\\\[;//\", Name) && 'odd)name' isnt undefined"
    assert asked(annotated(requirements=harmless), **ALL)["requirements"].startswith(
        f"({harmless})"
    )


def test_texts_of_attributes() -> None:
    assert submit_file.quote_string('a "b" $c \\d') == '"a \\"b\\" $(DOLLAR)c \\d"'
    for hostile in ("$$(X)", "a\nb", 'a\\"b', "a\\"):
        with pytest.raises(Forbidden):
            submit_file.quote_string(hostile)


def test_the_stub_is_one_line_of_words(tmp_path: Path) -> None:
    pool = Pool(name="site", directory="/a 'b' \"c\" $d")
    job = job_of()
    directory = f"{pool.directory}/jobs/{job.name}"
    (line,) = [
        one
        for one in build_description(job, directory, pool, load({}, "site")).splitlines()
        if one.startswith("arguments = ")
    ]
    assert line.endswith("""' 'interlink' '$(ClusterId).$(ProcId)'\"""")
    assert "$(DOLLAR)d" in line
    assert "$d" not in line


def test_every_annotation_is_known_by_one_name() -> None:
    assert all(name == name.lower() for name in ANNOTATIONS)


def test_a_job_of_an_element_elsewhere() -> None:
    """Its output lies there under a plain name, and it stays until that has been fetched."""
    found = written(job_of(), shared=False, remote={"schedd": "ce", "collector": "c:9618"})
    assert (found["output"], found["error"]) == ("stream", "errors")
    assert "transfer_output_files" not in found
    assert found["leave_in_queue"] == (
        '(JobStatus == 4 || (JobStatus == 3 && !regexp("^(interlink: |Staging of job files failed)"'
        ', RemoveReason ?: ""))) && time() - EnteredCurrentStatus < 604800'
    )


TOKENS = {"issuer": "https://i", "client_id": "us", "client_secret_file": "/s"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"requirements": "(x"}, "requirements: .* is not closed"),
        ({"collector_constraint": "a // b"}, "collector_constraint: // cannot"),
        ({"commands": {"a b": "x"}}, "commands"),
        ({"commands": {"a-b": "x"}}, "commands.a-b: is no name of a command"),
        ({"resources": {"nvidia.com/gpu": "gp us"}}, "resources"),
        ({"resources": {"nvidia.com/gpu": "1"}}, "1 is no name of a resource"),
        ({"capacity": "all"}, "capacity"),
        ({"wishes": 1}, "wishes"),
        ({"remote": {"schedd": "ce"}, "shared": False}, "remote.collector: is missing"),
        ({"remote": {"schedd": "ce", "collector": "c:1"}}, "shared: must be false where remote"),
        ({"tokens": {"issuer": "http://i"}}, "tokens.issuer: must begin with https"),
        ({"tokens": {"issuer": "https://i"}}, "tokens.client_id: is missing"),
        ({"tokens": {"issuer": "https://i", "client_id": "us"}}, "tokens: needs a client_secret"),
        ({"tokens": {**TOKENS, "redis": {"url": "r"}}}, "tokens.redis: is .* use tokens.bucket"),
        ({"tokens": {**TOKENS, "bucket": "a.b"}}, "tokens.bucket: must consist of letters"),
        ({"tokens": {**TOKENS, "bucket": "b", "share": "/s"}}, "only one of share and bucket"),
    ],
)
def test_mistakes_of_a_site(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(options, "site")
