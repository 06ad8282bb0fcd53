"""The request for sbatch: the flavor of a job, its flags, and the batch script.

Flags in rising order: from the pod's resources, from the site for all jobs, from the flavor, from
the pod's own annotation. The flags that tie the job to its pod override them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import NamedTuple

from submitter.backends.slurm import flags
from submitter.backends.slurm.flags import Flags
from submitter.backends.slurm.options import Flavor, Options
from submitter.backends.slurm.parsing import parse_time_limit
from submitter.common.errors import Forbidden
from submitter.config import policy
from submitter.config.settings import Pool
from templates.common.quantity import byte_count, cpu_milli
from templates.common.quoting import quote
from templates.job.model import Job

FLAGS_FIELD = "the annotation flags"
FLAVOR_ANNOTATION = "flavor"
KNOWN_ANNOTATIONS = (policy.FLAGS, FLAVOR_ANNOTATION)
_FLAVOR_FLAGS = ("partition", "account", "qos", "reservation", "constraint")
_ANY_FLAVOR = Flavor()

# Runs in the batch shell before the job's script replaces it. The script's directory may be new to
# this node; LATE_S is for file systems that are slow to show it.
LATE_S = 60
_STUB = """\
# By interlink-submitter: becomes the script of a pod's job.
umask 077
export INTERLINK_JOB={name} INTERLINK_NATIVE=$SLURM_JOB_ID
export INTERLINK_STARTS=${{SLURM_RESTART_COUNT:-0}} SLURM_EXPORT_ENV=ALL
[ -n "${{HOME-}}" ] || export HOME=~
for ((i = 0; i < {late_s}; i++)); do
    [ ! -r {directory}/job.sh ] || break
    ls {jobs} >/dev/null
    sleep 1
done
exec {bash} {directory}/job.sh {directory} {spool}
"""


class RequestedResources(NamedTuple):
    """The resources that a job requests in all, from all sources."""

    cpu_milli: int
    memory_bytes: int
    gpus: int
    wall_time_s: int  # 0: as long as it takes


class SbatchRequest(NamedTuple):
    """A job as Slurm gets it."""

    options: Flags
    flavor: str
    needs: RequestedResources


def build_request(job: Job, pool: Pool, site: Options) -> SbatchRequest:
    """Return the first flavor that fits a job, with all flags; ``Forbidden`` if none does."""
    _check_annotations(job)
    own = _pod_flags(job, pool)
    derived = _derive_flags(job, site)
    always = flags.parse(site.flags, f"pool {pool.name}: options.flags")
    misfits = []
    for flavor in site.flavors or (_ANY_FLAVOR,):
        options = flags.merge(derived, always, _flavor_flags(flavor, pool), own)
        needs = _requested_resources(job, options)
        misfit = next(_find_misfits(flavor, job, own, needs), "")
        if not misfit:
            _check_policy(job, needs, pool)
            return SbatchRequest(_add_time_limit(options, job, flavor, site), flavor.name, needs)
        misfits.append(f"{flavor.name} {misfit}")
    raise Forbidden(f"fits into no flavor of this pool: {'; '.join(misfits)}")


# --- sources of flags ----------------------------------------------------------------------------


def _check_annotations(job: Job) -> None:
    """Refuse annotations that mean nothing here, instead of ignoring them."""
    for name in job.annotations:
        if "/" not in name and name not in KNOWN_ANNOTATIONS:  # condor/...: for HTCondor's pools
            known = " and ".join(KNOWN_ANNOTATIONS)
            raise Forbidden(f"the annotation {name} means nothing to a Slurm pool: {known} do")


def _pod_flags(job: Job, pool: Pool) -> Flags:
    text = job.annotations.get(policy.FLAGS, "")
    own = flags.parse(flags.split_words(text, FLAGS_FIELD), FLAGS_FIELD)
    if "requeue" in own and not pool.build.script.rerun:
        raise Forbidden(f"{FLAGS_FIELD}: --requeue: this site runs no job a second time")
    if "job-name" in own:  # jobs are known by their names; the other one is for people
        own = {"comment": own["job-name"], **own}
        del own["job-name"]
    return own


def _derive_flags(job: Job, site: Options) -> Flags:
    options: Flags = {
        "comment": f"{job.namespace}/{job.pod}",
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(max(1, ceil(job.cpu_milli / 1000))),
        "mem": flags.format_mebibytes(job.memory_bytes),
    }
    gres: list[str] = []
    gpus: list[str] = []
    for resource, amount in {**_parse_amounts(job.other_resources), **job.gpus}.items():
        name = site.gres.get(resource)
        if name is None:
            known = ", ".join(site.gres) or "none"
            raise Forbidden(f"asks for {resource}, and options.gres of this pool has only {known}")
        kind, _, model = name.partition(":")
        if kind == "gpu" and site.gpu_flag == "gpus":
            gpus.append(f"{model}:{amount}" if model else str(amount))
        else:
            gres.append(f"{name}:{amount}")
    named = {"gres": ",".join(gres), "gpus": ",".join(gpus)}
    return {**options, **{name: text for name, text in named.items() if text}}


def _parse_amounts(resources: Mapping[str, str]) -> dict[str, int]:
    return {name: byte_count(text, name) for name, text in resources.items()}


def _flavor_flags(flavor: Flavor, pool: Pool) -> Flags:
    options: Flags = {
        name: getattr(flavor, name) for name in _FLAVOR_FLAGS if getattr(flavor, name)
    }
    field = f"pool {pool.name}: options.flavors: {flavor.name}: flags"
    return flags.merge(options, flags.parse(flavor.flags, field))


# --- which flavor --------------------------------------------------------------------------------


def _requested_resources(job: Job, options: Flags) -> RequestedResources:
    limit = parse_time_limit(options["time"] or "") if "time" in options else job.wall_time_s
    if limit is None and "time" in options:
        raise Forbidden(f"{FLAGS_FIELD}: --time={options['time']} is no time limit")
    return RequestedResources(
        max(job.cpu_milli, 1000 * flags.count_cpus(options)),
        flags.sum_memory_bytes(options),
        flags.count_gpus(options),
        limit or 0,
    )


def _find_misfits(flavor: Flavor, job: Job, own: Flags, needs: RequestedResources) -> Iterator[str]:
    """Yield the reasons why a job cannot have a flavor."""
    wanted = job.annotations.get(FLAVOR_ANNOTATION, "").strip()
    if wanted and wanted != flavor.name:
        yield "is not the one that the annotation flavor names"
    for name in _FLAVOR_FLAGS:
        has, requested = getattr(flavor, name), own.get(name)
        if has and requested and requested != has:
            yield f"has {name} {has}"
    if flavor.max_cpu is not None and needs.cpu_milli > cpu_milli(flavor.max_cpu):
        yield f"gives at most {flavor.max_cpu} cores"
    if flavor.max_memory is not None and needs.memory_bytes > byte_count(flavor.max_memory):
        yield f"gives at most {flavor.max_memory} of memory"
    if flavor.max_gpus is not None and needs.gpus > flavor.max_gpus:
        yield f"gives at most {flavor.max_gpus} GPUs"
    if needs.gpus < flavor.min_gpus:
        yield f"is for jobs with {flavor.min_gpus} GPUs or more"
    if flavor.max_wall_time_s is not None and needs.wall_time_s > flavor.max_wall_time_s:
        yield f"gives at most {flavor.max_wall_time_s} s"


def _check_policy(job: Job, needs: RequestedResources, pool: Pool) -> None:
    """Apply the pool's limits to what flags request, too."""
    requested = job._replace(
        cpu_milli=needs.cpu_milli,
        memory_bytes=max(job.memory_bytes, needs.memory_bytes),
        gpus={"gpus": needs.gpus},
        wall_time_s=needs.wall_time_s or None,
    )
    policy.check_amounts(requested, pool.policy)


def _add_time_limit(options: Flags, job: Job, flavor: Flavor, site: Options) -> Flags:
    """Add a time limit that leaves the pod its deadline, and a TERM before it is reached."""
    options = dict(options)
    limit = flavor.max_wall_time_s
    if job.wall_time_s is not None:
        needed = job.wall_time_s + job.grace_period_s + site.wall_time_margin_s
        limit = min(needed, limit or needed)
    if limit is not None and "time" not in options:
        options["time"] = str(max(1, ceil(limit / 60)))
    known = parse_time_limit(options.get("time") or "") or 0
    if site.warning_s and "signal" not in options and not 0 < known <= 2 * site.warning_s:
        options["signal"] = f"B:TERM@{site.warning_s}"
    return options


# --- the batch script ----------------------------------------------------------------------------


def build_script(job: Job, directory: str, pool: Pool, site: Options) -> str:
    """Return the batch script of a job: #SBATCH lines and the stub."""
    options = dict(build_request(job, pool, site).options)
    rerun = pool.build.script.rerun
    if not rerun:
        options.pop("requeue", None)
    ours: Flags = {
        "job-name": job.name,
        "chdir": options.pop("chdir", None) or directory,
        "export": ",".join(site.export) or "NONE",
        "output": options.pop("output", None) or f"{directory.replace('%', '%%')}/output",
        "open-mode": options.pop("open-mode", None) or "append",
    }
    if rerun and "no-requeue" not in options:
        ours["requeue"] = options.pop("requeue", None)
    else:
        ours["no-requeue"] = options.pop("no-requeue", None)
    stub = _STUB.format(
        name=job.name,
        late_s=LATE_S,
        directory=quote(directory),
        jobs=quote(directory.rpartition("/")[0]),
        spool=quote(f"{pool.directory}/spool"),
        bash=quote(pool.build.script.bash),
    )
    written = flags.format_lines({**options, **ours})
    return f"#!{pool.build.script.bash}\n{written}{stub}"
