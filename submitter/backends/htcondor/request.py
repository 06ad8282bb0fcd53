"""The request for condor_submit: the submit description of a job.

The commands that tie a job to its pod cannot be changed; the rest follows from the pod's resources,
from the site's options for all jobs, and from the pod's annotations that the site allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from math import ceil

from submitter.backends.htcondor import submit_file
from submitter.backends.htcondor.options import NAME_PATTERN, Options
from submitter.backends.htcondor.spooling import REASON_PREFIX, STAGING_FAILED
from submitter.backends.htcondor.states import REFUSALS, TEMPORARY
from submitter.backends.htcondor.transfer import ERRORS, INPUT, STREAM, STUB
from submitter.common.errors import Forbidden
from submitter.config.settings import Pool
from templates.common.errors import InterlinkNatsError, one_line
from templates.common.quantity import byte_count
from templates.common.quoting import quote
from templates.job.model import Job

ANNOTATION_PREFIX = "condor/"  # of the annotations for HTCondor
MEBIBYTE, KIBIBYTE = 1024**2, 1024
RELEASE_AFTER_S = 30  # after a temporary error
VACATE_MARGIN_S = 15  # for the last records, after the grace period of a pod
LATE_S = 60  # for file systems that are slow to show a job's directory
NATIVE_MACRO = "$(ClusterId).$(ProcId)"  # expanded by condor_submit
JOB_ATTRIBUTE = "InterlinkJob"  # by which a job is found
POOL_ATTRIBUTE = "InterlinkPool"

# Annotation -> what it does; the table in docs/htcondor.md follows from it.
ANNOTATIONS: Mapping[str, str] = {
    "requirements": "an expression that its machine has to fulfil, besides the site's",
    "rank": "an expression by which machines are preferred, in place of the site's",
    "accounting-group": "its accounting group, in place of the site's",
    "priority": "a whole number: among the submitter's jobs those with larger ones come first",
    "disk": "the disk space that it asks for (10Gi)",
    "attributes": "attributes of the job: one `Name = expression` on each line",
}
_GROUP = re.compile(r"[A-Za-z0-9_.@-]{1,200}")

# Becomes the script; one line in the end. The attribute says how often the job has started before.
_STUB = """\
umask 077; export INTERLINK_JOB={name} INTERLINK_NATIVE=$1
starts=$(sed -n "s/^NumJobStarts *= *//p" "$_CONDOR_JOB_AD"); export INTERLINK_STARTS=${{starts:-0}}
[ -n "${{HOME-}}" ] || export HOME=~
i=0; until [ -r {directory}/job.sh ] || [ $((i += 1)) -gt {late_s} ]
do ls {jobs} >/dev/null; sleep 1
done
exec {bash} {directory}/job.sh {directory} {spool}"""


def build_commands(job: Job, pool: Pool, site: Options) -> dict[str, str]:
    """Return the commands that request resources; ``Forbidden`` if the site refuses them."""
    own = _read_annotations(job, site)
    requested = {
        "request_cpus": str(max(1, ceil(job.cpu_milli / 1000))),
        "request_memory": str(max(1, ceil(job.memory_bytes / MEBIBYTE))),
        "request_disk": str(_parse_disk(own.get("disk", site.disk))),
        **dict(_request_resources(job, site)),
        "requirements": " && ".join(_machine_conditions(own, pool, site)),
    }
    rank = own.get("rank") or site.rank
    if rank:
        requested["rank"] = submit_file.parenthesize(rank, "rank")
    group = own.get("accounting-group") or site.accounting_group
    if group:
        requested["accounting_group"] = _check_pattern(group, _GROUP, "accounting-group")
    if "priority" in own:
        requested["priority"] = _check_pattern(
            own["priority"], re.compile(r"-?[0-9]{1,9}"), "priority"
        )
    if job.wall_time_s is not None:
        limit = str(job.wall_time_s + job.grace_period_s + site.wall_time_margin_s)
        requested |= {"allowed_job_duration": limit, "MY.MaxRuntime": limit}
    site_commands = {name.replace("+", "MY.", 1): text for name, text in site.commands.items()}
    return {**requested, **_read_attributes(own.get("attributes", ""), site), **site_commands}


def build_description(job: Job, directory: str, pool: Pool, site: Options) -> str:
    """Return the submit description of a job."""
    if site.shared:
        files = _shared_commands(job, directory, pool)
    else:
        files = _transfer_commands(directory, site)
    ours = {
        "universe": "vanilla",
        **files,
        "initialdir": submit_file.escape_macros(directory),
        "notification": "never",
        f"MY.{JOB_ATTRIBUTE}": submit_file.quote_string(job.name),
        f"MY.{POOL_ATTRIBUTE}": submit_file.quote_string(pool.name),
        "MY.KubernetesNamespace": submit_file.quote_string(job.namespace),
        "MY.KubernetesPod": submit_file.quote_string(job.pod),
        "batch_name": submit_file.escape_macros(pool.name),
        "kill_sig": "SIGTERM",
        "job_max_vacate_time": str(job.grace_period_s + VACATE_MARGIN_S),
        "leave_in_queue": _stay_condition(site),
        "periodic_release": _release_condition(pool, site),
    }
    if site.export:
        ours["getenv"] = ", ".join(site.export)
    return submit_file.format_commands({**build_commands(job, pool, site), **ours})


def _stay_condition(site: Options) -> str:
    """Keep an ended job until it was polled; at a remote schedd also a removed one."""
    if not site.remote.schedd:
        return f"JobStatus == 4 && time() - CompletionDate < {site.keep_s}"
    final = f"{REASON_PREFIX}|{STAGING_FAILED}"
    removed = f'(JobStatus == 3 && !regexp("^({final})", RemoveReason ?: ""))'
    return f"(JobStatus == 4 || {removed}) && time() - EnteredCurrentStatus < {site.keep_s}"


# --- the job's program and files ------------------------------------------------------------------


def _shared_commands(job: Job, directory: str, pool: Pool) -> dict[str, str]:
    """Return the commands for machines that see the job's directory."""
    stub = _STUB.format(
        name=job.name,
        late_s=LATE_S,
        directory=quote(directory),
        jobs=quote(directory.rpartition("/")[0]),
        spool=quote(f"{pool.directory}/spool"),
        bash=quote(pool.build.script.bash),
    )
    arguments = [
        "-c",
        submit_file.escape_macros(stub.replace("\n", "; ")),
        "interlink",
        "$(ClusterId).$(ProcId)",
    ]
    return {
        "executable": submit_file.escape_macros(pool.build.script.bash),
        "transfer_executable": "false",
        "should_transfer_files": "NO",
        "arguments": submit_file.format_arguments(arguments),
        "output": submit_file.escape_macros(f"{directory}/output"),
        "error": submit_file.escape_macros(f"{directory}/output"),
    }


def _transfer_commands(directory: str, site: Options) -> dict[str, str]:
    """Return the commands for machines that do not see the job's directory."""
    there = submit_file.escape_macros(directory)
    streams = "true" if site.stream else "false"
    # A remote schedd keeps the output until it is fetched; an empty list would forbid that.
    back = {"output": STREAM, "error": ERRORS}
    if not site.remote.schedd:
        back = {name: f"{there}/{file}" for name, file in back.items()}
        back["transfer_output_files"] = '""'
    return {
        "executable": f"{there}/{STUB}",
        "transfer_executable": "true",
        "should_transfer_files": "YES",
        "when_to_transfer_output": "ON_EXIT",
        "transfer_input_files": f"{there}/{INPUT}",
        "encrypt_input_files": f"{there}/{INPUT}",
        "arguments": submit_file.format_arguments([NATIVE_MACRO]),
        **back,
        "stream_output": streams,
        "stream_error": streams,
    }


# --- the pod's annotations and resources ----------------------------------------------------------


def _read_annotations(job: Job, site: Options) -> dict[str, str]:
    own = {
        name[len(ANNOTATION_PREFIX) :]: text
        for name, text in job.annotations.items()
        if name.startswith(ANNOTATION_PREFIX)
    }
    for name in own:
        if name not in ANNOTATIONS:
            known = ", ".join(ANNOTATIONS)
            raise Forbidden(f"the annotation {one_line(name, 80)} is not known here: {known} are")
        if not any(fnmatchcase(name, pattern) for pattern in site.pod_annotations):
            raise Forbidden(f"options.pod_annotations of this pool does not allow {name}")
    return own


def _check_pattern(value: str, pattern: re.Pattern[str], name: str) -> str:
    if not pattern.fullmatch(value.strip()):
        raise Forbidden(f"the annotation {name}: {one_line(value, 80)} is none")
    return value.strip()


def _read_attributes(value: str, site: Options) -> dict[str, str]:
    found = {}
    for line in value.splitlines():
        name, equals, written = (part.strip() for part in line.partition("="))
        if not name and not equals:
            continue
        field = f"the annotation attributes: {one_line(name, 80)}"
        if not equals or not NAME_PATTERN.fullmatch(name):
            raise Forbidden(f"{field}: is not Name = expression")
        if not any(fnmatchcase(name, pattern) for pattern in site.pod_attributes):
            raise Forbidden(f"{field}: options.pod_attributes of this pool does not allow it")
        found[f"MY.{name}"] = submit_file.parenthesize(written, field)
    return found


def _parse_disk(text: str) -> int:
    """Return an amount in the unit of request_disk."""
    try:
        return max(1, ceil(byte_count(text, "disk") / KIBIBYTE))
    except InterlinkNatsError as error:
        raise Forbidden(f"the annotation disk: {error}") from None


def _request_resources(job: Job, site: Options) -> Iterator[tuple[str, str]]:
    others = {name: byte_count(text, name) for name, text in job.other_resources.items()}
    for resource, amount in {**others, **job.gpus}.items():
        name = site.resources.get(resource)
        if name is None:
            known = ", ".join(site.resources) or "none"
            raise Forbidden(
                f"asks for {resource}, and options.resources of this pool has only {known}"
            )
        yield f"request_{name}", str(amount)


def never_started(pool: Pool, site: Options) -> str:
    """Return an expression that is true for a job that has never started, if that matters.

    Where two starts have no shared directory, a try that was not refused counts as a start.
    """
    if pool.build.script.rerun:
        return "true"
    if site.shared:
        return "NumJobStarts == 0"
    refused = " + ".join(f"(NumVacatesByReason.{name} ?: 0)" for name in REFUSALS)
    return f"NumJobStarts == 0 && (NumShadowStarts ?: 0) == {refused}"


def _machine_conditions(own: Mapping[str, str], pool: Pool, site: Options) -> Iterator[str]:
    """Yield the requirements; a job that must not run twice matches nothing after its start."""
    if site.requirements:
        yield submit_file.parenthesize(site.requirements, "options.requirements")
    if "requirements" in own:
        yield submit_file.parenthesize(own["requirements"], "the annotation requirements")
    yield never_started(pool, site)


def _release_condition(pool: Pool, site: Options) -> str:
    codes = ", ".join(map(str, TEMPORARY))
    rested = f"time() - EnteredCurrentStatus > {RELEASE_AFTER_S}"
    few = f"NumHolds <= {site.releases}"
    fresh = never_started(pool, site)
    return f"member(HoldReasonCode, {{{codes}}}) && {few} && {rested} && {fresh}"
