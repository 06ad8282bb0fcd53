"""What sbatch is told about a job: its flavor, its options, and the stub that runs.

In rising order: what follows from the pod's resources, what the site says for all jobs, what the
flavor says, what the pod's own flags say. What ties the job to its pod is nobody's to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import NamedTuple

from submitter.backends.slurm import flags
from submitter.backends.slurm.flags import Options
from submitter.backends.slurm.options import Flavor
from submitter.backends.slurm.options import Options as SiteOptions
from submitter.backends.slurm.parsing import seconds
from submitter.common.errors import Forbidden
from submitter.config import policy
from submitter.config.settings import Pool
from templates.common.quantity import byte_count, cpu_milli
from templates.common.quoting import quote
from templates.job.model import Job

FLAGS = "the annotation flags"
FLAVOR = "flavor"
UNDERSTOOD = (policy.FLAGS, FLAVOR)
_OF_A_FLAVOR = ("partition", "account", "qos", "reservation", "constraint")
_ANY = Flavor()

# What the batch shell does before it becomes the job's script. The script's directory may be new to
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


class Needs(NamedTuple):
    """What a job asks for in all, whoever said so."""

    cpu_milli: int
    memory_bytes: int
    gpus: int
    wall_time_s: int  # 0: as long as it takes


class SbatchRequest(NamedTuple):
    """A job in Slurm's words."""

    options: Options
    flavor: str
    needs: Needs


def request(job: Job, pool: Pool, site: SiteOptions) -> SbatchRequest:
    """What a job asks Slurm for; ``Forbidden`` if the site does not give that."""
    _check_annotations(job)
    own = _own_options(job, pool)
    derived = _derived(job, site)
    always = flags.parse(site.flags, f"pool {pool.name}: options.flags")
    misfits = []
    for flavor in site.flavors or (_ANY,):
        options = flags.merged(derived, always, _of_flavor(flavor, pool), own)
        needs = _needs(job, options)
        why = next(_misfits(flavor, job, own, needs), "")
        if not why:
            _check_policy(job, needs, pool)
            return SbatchRequest(_with_time(options, job, flavor, site), flavor.name, needs)
        misfits.append(f"{flavor.name} {why}")
    raise Forbidden(f"fits into no flavor of this pool: {'; '.join(misfits)}")


# --- where options come from ---------------------------------------------------------------------


def _check_annotations(job: Job) -> None:
    """What is asked for by a name that means nothing here is refused, and not left out."""
    for name in job.annotations:
        if "/" not in name and name not in UNDERSTOOD:  # condor/...: for HTCondor's pools
            known = " and ".join(UNDERSTOOD)
            raise Forbidden(f"the annotation {name} means nothing to a Slurm pool: {known} do")


def _own_options(job: Job, pool: Pool) -> Options:
    text = job.annotations.get(policy.FLAGS, "")
    own = flags.parse(flags.words_of(text, FLAGS), FLAGS)
    if "requeue" in own and not pool.build.script.rerun:
        raise Forbidden(f"{FLAGS}: --requeue: this site runs no job a second time")
    if "job-name" in own:  # jobs are known by their names; the other one is for people
        own = {"comment": own["job-name"], **own}
        del own["job-name"]
    return own


def _derived(job: Job, site: SiteOptions) -> Options:
    options: Options = {
        "comment": f"{job.namespace}/{job.pod}",
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(max(1, ceil(job.cpu_milli / 1000))),
        "mem": flags.mebibytes(job.memory_bytes),
    }
    gres: list[str] = []
    gpus: list[str] = []
    for resource, amount in {**_numbers(job.other_resources), **job.gpus}.items():
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


def _numbers(resources: Mapping[str, str]) -> dict[str, int]:
    return {name: byte_count(text, name) for name, text in resources.items()}


def _of_flavor(flavor: Flavor, pool: Pool) -> Options:
    options: Options = {
        name: getattr(flavor, name) for name in _OF_A_FLAVOR if getattr(flavor, name)
    }
    where = f"pool {pool.name}: options.flavors: {flavor.name}: flags"
    return flags.merged(options, flags.parse(flavor.flags, where))


# --- which flavor --------------------------------------------------------------------------------


def _needs(job: Job, options: Options) -> Needs:
    limit = seconds(options["time"] or "") if "time" in options else job.wall_time_s
    if limit is None and "time" in options:
        raise Forbidden(f"{FLAGS}: --time={options['time']} is no time limit")
    return Needs(
        max(job.cpu_milli, 1000 * flags.cpus(options)),
        flags.memory_bytes(options),
        flags.gpus(options),
        limit or 0,
    )


def _misfits(flavor: Flavor, job: Job, own: Options, needs: Needs) -> Iterator[str]:
    """Why a job cannot have a flavor."""
    wanted = job.annotations.get(FLAVOR, "").strip()
    if wanted and wanted != flavor.name:
        yield "is not the one that the annotation flavor names"
    for name in _OF_A_FLAVOR:
        has, asked = getattr(flavor, name), own.get(name)
        if has and asked and asked != has:
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


def _check_policy(job: Job, needs: Needs, pool: Pool) -> None:
    """The pool's bounds hold for what flags ask for, too."""
    asked = job._replace(
        cpu_milli=needs.cpu_milli,
        memory_bytes=max(job.memory_bytes, needs.memory_bytes),
        gpus={"gpus": needs.gpus},
        wall_time_s=needs.wall_time_s or None,
    )
    policy.check(asked, pool.policy)


def _with_time(options: Options, job: Job, flavor: Flavor, site: SiteOptions) -> Options:
    """With a time limit that leaves the pod its deadline, and a word in time before it ends."""
    options = dict(options)
    limit = flavor.max_wall_time_s
    if job.wall_time_s is not None:
        needed = job.wall_time_s + job.grace_period_s + site.wall_time_margin_s
        limit = min(needed, limit or needed)
    if limit is not None and "time" not in options:
        options["time"] = str(max(1, ceil(limit / 60)))
    known = seconds(options.get("time") or "") or 0
    if site.warning_s and "signal" not in options and not 0 < known <= 2 * site.warning_s:
        options["signal"] = f"B:TERM@{site.warning_s}"
    return options


# --- what is handed over -------------------------------------------------------------------------


def script(job: Job, directory: str, pool: Pool, site: SiteOptions) -> str:
    """The batch script of a job: #SBATCH lines and the stub."""
    options = dict(request(job, pool, site).options)
    rerun = pool.build.script.rerun
    if not rerun:
        options.pop("requeue", None)
    ours: Options = {
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
    written = flags.lines({**options, **ours})
    return f"#!{pool.build.script.bash}\n{written}{stub}"
