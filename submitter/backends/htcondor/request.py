"""What condor_submit is told about a job: the description that makes it what its pod asks for.

What ties a job to its pod is nobody's to change; the rest follows from the pod's resources, from
what the site says for all jobs, and from the pod's annotations, as far as the site allows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from math import ceil

from submitter.backends.htcondor import submit_file as description
from submitter.backends.htcondor.options import NAME, Options
from submitter.backends.htcondor.spooling import OURS, STAGING
from submitter.backends.htcondor.states import PASSING, REFUSALS
from submitter.backends.htcondor.transfer import ERRORS, INPUT, STREAM, STUB
from submitter.common.errors import Forbidden
from submitter.config.settings import Pool
from templates.common.errors import InterlinkNatsError, one_line
from templates.common.quantity import byte_count
from templates.common.quoting import quote
from templates.job.model import Job

FAMILY = "condor/"  # before the names of annotations that are HTCondor's
MEBIBYTE, KIBIBYTE = 1024**2, 1024
RELEASE_AFTER_S = 30  # what a trouble that may pass is given
VACATE_MARGIN_S = 15  # for the last records, after the grace period of a pod
LATE_S = 60  # for file systems that are slow to show a job's directory
NATIVE = "$(ClusterId).$(ProcId)"  # as condor_submit will know it
JOB, POOL = "InterlinkJob", "InterlinkPool"  # attributes by which jobs are found

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


def commands(job: Job, pool: Pool, site: Options) -> dict[str, str]:
    """What a job asks HTCondor for; ``Forbidden`` if the site does not give that."""
    own = _annotations(job, site)
    asked = {
        "request_cpus": str(max(1, ceil(job.cpu_milli / 1000))),
        "request_memory": str(max(1, ceil(job.memory_bytes / MEBIBYTE))),
        "request_disk": str(_disk(own.get("disk", site.disk))),
        **dict(_resources(job, site)),
        "requirements": " && ".join(_requirements(own, pool, site)),
    }
    rank = own.get("rank") or site.rank
    if rank:
        asked["rank"] = description.expression(rank, "rank")
    group = own.get("accounting-group") or site.accounting_group
    if group:
        asked["accounting_group"] = _matching(group, _GROUP, "accounting-group")
    if "priority" in own:
        asked["priority"] = _matching(own["priority"], re.compile(r"-?[0-9]{1,9}"), "priority")
    if job.wall_time_s is not None:
        limit = str(job.wall_time_s + job.grace_period_s + site.wall_time_margin_s)
        asked |= {"allowed_job_duration": limit, "MY.MaxRuntime": limit}
    site_commands = {name.replace("+", "MY.", 1): text for name, text in site.commands.items()}
    return {**asked, **_attributes(own.get("attributes", ""), site), **site_commands}


def text(job: Job, directory: str, pool: Pool, site: Options) -> str:
    """The submit description of a job."""
    ours = {
        "universe": "vanilla",
        **(_beside(job, directory, pool) if site.shared else _sent(directory, site)),
        "initialdir": description.plain(directory),
        "notification": "never",
        f"MY.{JOB}": description.string(job.name),
        f"MY.{POOL}": description.string(pool.name),
        "MY.KubernetesNamespace": description.string(job.namespace),
        "MY.KubernetesPod": description.string(job.pod),
        "batch_name": description.plain(pool.name),
        "kill_sig": "SIGTERM",
        "job_max_vacate_time": str(job.grace_period_s + VACATE_MARGIN_S),
        "leave_in_queue": _stays(site),
        "periodic_release": _release(pool, site),
    }
    if site.export:
        ours["getenv"] = ", ".join(site.export)
    return description.lines({**commands(job, pool, site), **ours})


def _stays(site: Options) -> str:
    """An ended job stays until it was seen; elsewhere a removed one, too, until it was fetched."""
    if not site.remote.schedd:
        return f"JobStatus == 4 && time() - CompletionDate < {site.keep_s}"
    removed = f'(JobStatus == 3 && !regexp("^({OURS}|{STAGING})", RemoveReason ?: ""))'
    return f"(JobStatus == 4 || {removed}) && time() - EnteredCurrentStatus < {site.keep_s}"


# --- what runs ------------------------------------------------------------------------------------


def _beside(job: Job, directory: str, pool: Pool) -> dict[str, str]:
    """Where the job's directory is seen."""
    stub = _STUB.format(
        name=job.name,
        late_s=LATE_S,
        directory=quote(directory),
        jobs=quote(directory.rpartition("/")[0]),
        spool=quote(f"{pool.directory}/spool"),
        bash=quote(pool.build.script.bash),
    )
    words = [
        "-c",
        description.plain(stub.replace("\n", "; ")),
        "interlink",
        "$(ClusterId).$(ProcId)",
    ]
    return {
        "executable": description.plain(pool.build.script.bash),
        "transfer_executable": "false",
        "should_transfer_files": "NO",
        "arguments": description.arguments(words),
        "output": description.plain(f"{directory}/output"),
        "error": description.plain(f"{directory}/output"),
    }


def _sent(directory: str, site: Options) -> dict[str, str]:
    """Where it is not."""
    there = description.plain(directory)
    streams = "true" if site.stream else "false"
    # At a schedd elsewhere the output lies until it is fetched; an empty list would forbid that.
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
        "arguments": description.arguments([NATIVE]),
        **back,
        "stream_output": streams,
        "stream_error": streams,
    }


# --- what a pod says ------------------------------------------------------------------------------


def _annotations(job: Job, site: Options) -> dict[str, str]:
    own = {
        name[len(FAMILY) :]: text
        for name, text in job.annotations.items()
        if name.startswith(FAMILY)
    }
    for name in own:
        if name not in ANNOTATIONS:
            known = ", ".join(ANNOTATIONS)
            raise Forbidden(f"the annotation {one_line(name, 80)} is not known here: {known} are")
        if not any(fnmatchcase(name, pattern) for pattern in site.pod_annotations):
            raise Forbidden(f"options.pod_annotations of this pool does not allow {name}")
    return own


def _matching(value: str, pattern: re.Pattern[str], name: str) -> str:
    if not pattern.fullmatch(value.strip()):
        raise Forbidden(f"the annotation {name}: {one_line(value, 80)} is none")
    return value.strip()


def _attributes(value: str, site: Options) -> dict[str, str]:
    found = {}
    for line in value.splitlines():
        name, equals, written = (part.strip() for part in line.partition("="))
        if not name and not equals:
            continue
        where = f"the annotation attributes: {one_line(name, 80)}"
        if not equals or not NAME.fullmatch(name):
            raise Forbidden(f"{where}: is not Name = expression")
        if not any(fnmatchcase(name, pattern) for pattern in site.pod_attributes):
            raise Forbidden(f"{where}: options.pod_attributes of this pool does not allow it")
        found[f"MY.{name}"] = description.expression(written, where)
    return found


def _disk(text: str) -> int:
    """In the unit of request_disk."""
    try:
        return max(1, ceil(byte_count(text, "disk") / KIBIBYTE))
    except InterlinkNatsError as error:
        raise Forbidden(f"the annotation disk: {error}") from None


def _resources(job: Job, site: Options) -> Iterator[tuple[str, str]]:
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
    """An expression that is true of a job that has no machine behind it, if it matters.

    Where two starts do not meet in one directory, it counts that one was tried, and not refused.
    """
    if pool.build.script.rerun:
        return "true"
    if site.shared:
        return "NumJobStarts == 0"
    refused = " + ".join(f"(NumVacatesByReason.{name} ?: 0)" for name in REFUSALS)
    return f"NumJobStarts == 0 && (NumShadowStarts ?: 0) == {refused}"


def _requirements(own: Mapping[str, str], pool: Pool, site: Options) -> Iterator[str]:
    """A job that must not run twice fits nowhere once it has started."""
    if site.requirements:
        yield description.expression(site.requirements, "options.requirements")
    if "requirements" in own:
        yield description.expression(own["requirements"], "the annotation requirements")
    yield never_started(pool, site)


def _release(pool: Pool, site: Options) -> str:
    codes = ", ".join(map(str, PASSING))
    rested = f"time() - EnteredCurrentStatus > {RELEASE_AFTER_S}"
    few = f"NumHolds <= {site.releases}"
    fresh = never_started(pool, site)
    return f"member(HoldReasonCode, {{{codes}}}) && {few} && {rested} && {fresh}"
