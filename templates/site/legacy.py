"""Keys of older configurations, and what became of each.

Two are known: the BuildConfig of the older NATS plugin (sections in TOML) and SlurmConfig.yaml of
interLink's Slurm plugin (``CamelCase`` keys). A key whose meaning is still the same is understood;
every other one is refused with the place of its successor.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from templates.common.errors import ConfigError
from templates.site.build_config import ON_THE_NODE


def _moved(key: str) -> str:
    return f"is now {key} in the submitter's configuration"


_FLAGS = _moved("pools[].options.flags")
_FLAVORS = "pools[].options.flavors"
_WALL_TIME = "is now defaults.wall_time_s"
_OF_SUBMITTER = "is the submitter's business: "
_REGISTRY = "is not supported: nodes pull images from their registry into images.cache"
_FUSE = (
    "is not supported: there are no FUSE volumes; let the site mount and list volumes.host_paths"
)
_TUNNEL = (
    "is not supported: jobs use the network of their node, and tunnels are started by the commands"
    " that interLink sends with the pod"
)
_ENROOT = "is not supported: enroot is none of the runtimes of runtime.name"
_SOCKS = "is not supported: let script.header set up what the site needs"
_NO_EFFECT = "is not supported: it never had an effect"

# Section.key -> reason; "section.*" is for keys that are not listed.
REFUSED: Mapping[str, str] = {
    "volumes.fuse_sleep_seconds": _FUSE,
    "apptainer.fuse_mode": _FUSE,
    "apptainer.cleanenv": (
        "is always so: containers see their own variables, environment.set and environment.keep"
    ),
    "apptainer.sharens": "is not supported: containers of a pod share volumes and localhost only",
    "shub_proxy.master_token": (
        "is not supported: this file is published, so no token may stand in it; revoke that one"
    ),
    "shub_proxy.*": _REGISTRY,
    "slurm.bash_executable": "is now script.bash",
    "slurm.sbatch_executable": _moved("pools[].options.programs.sbatch"),
    "slurm.squeue_executable": _moved("pools[].options.programs.squeue"),
    "slurm.sacct_executable": _moved("pools[].options.programs.sacct"),
    "slurm.flavors": _moved(_FLAVORS),
    "slurm.partition": _moved(f"{_FLAVORS}[].partition"),
    "slurm.qos": _moved(f"{_FLAVORS}[].qos"),
    "slurm.account": _moved(f"{_FLAVORS}[].account"),
    "slurm.reservation": _moved(f"{_FLAVORS}[].reservation"),
    "slurm.nodes": _FLAGS,
    "slurm.ntasks": _FLAGS,
    "slurm.nodelist": _FLAGS,
    "slurm.mail_user": _FLAGS,
    "slurm.mail_type": _FLAGS,
    "slurm.flags": _FLAGS,
    "slurm.generic_resources": _moved("pools[].options.gres"),
    "slurm.cpu": "is now defaults.cpu",
    "slurm.cpus_per_task": "is now defaults.cpu",
    "slurm.memory": "is now defaults.memory",
    "slurm.mem_per_cpu": "is now defaults.memory",
    "slurm.time": f"{_WALL_TIME}, in seconds",
    "slurm.max_time_seconds": _WALL_TIME,
    "slurm.sandbox": _moved("pools[].directory"),
    "slurm.job_name": "is not supported: a job has the name of its pod",
    "slurm.output": "is not supported: what a job says is in its directory",
    "slurm.error": "is not supported: what a job says is in its directory",
    "slurm.*": "belongs to pools[].options in the submitter's configuration",
    "resources.*": _moved("pools[].resources"),
    "node.labels": _moved("pools[].labels"),
    "node.taints": _moved("pools[].taints"),
    "node.*": "belongs to pools[] in the submitter's configuration",
    "network.*": _TUNNEL,
    "SidecarPort": _OF_SUBMITTER + "it listens nowhere, it connects to the NATS server",
    "Socket": _OF_SUBMITTER + "it listens nowhere, it connects to the NATS server",
    "SbatchPath": _moved("pools[].options.programs.sbatch"),
    "ScancelPath": _moved("pools[].options.programs.scancel"),
    "SqueuePath": _moved("pools[].options.programs.squeue"),
    "SinfoPath": _moved("pools[].options.programs.sinfo"),
    "SingularityPrefix": _NO_EFFECT,
    "EnrootPrefix": _NO_EFFECT,
    "EnrootPath": _ENROOT,
    "EnrootDefaultOptions": _ENROOT,
    "ExportPodData": "is always so: a pod's ConfigMaps, Secrets and volumes come with its job",
    "DataRootFolder": _moved("pools[].directory"),
    "Namespace": _NO_EFFECT,
    "VKConfigPath": _NO_EFFECT,
    "Tsocks": _SOCKS,
    "TsocksPath": _SOCKS,
    "TsocksLoginNode": _SOCKS,
    "VerboseLogging": _moved("logging.level"),
    "ErrorsOnlyLogging": _moved("logging.level"),
    "EnableProbes": "is always so: a pod's probes are honoured",
    "Flavors": _moved(_FLAVORS),
    "DefaultFlavor": _moved(_FLAVORS),
    "DefaultUID": _OF_SUBMITTER + "jobs run as the user that it submits as",
    "Taints": _moved("pools[].taints"),
    "ResourceScriptPath": _moved("pools[].resources"),
}


class _Rejected(Exception):
    """Value of an understood key that cannot be carried over; the text says why."""


Values = dict[str, Any]  # new key -> value


def _same(key: str) -> Callable[[Any], Values]:
    return lambda value: {key: value}


def _program(usual: str) -> Callable[[Any], Values]:
    """Convert a container program, whose name says which one it is; a bare one is on PATH."""

    def convert(value: Any) -> Values:
        if not isinstance(value, str):
            return {"runtime.executable": value}
        name = value.rpartition("/")[2].lower()
        found = [family for family in ("apptainer", "singularity") if family in name]
        executable = value if "/" in value else ""
        return {"runtime.executable": executable, "runtime.name": (found or [usual])[0]}

    return convert


def _gpu(value: Any) -> Values:
    if not isinstance(value, bool):
        raise _Rejected("must be true or false")
    return {"runtime.gpu": "always" if value else "never"}


def _container_runtime(value: Any) -> Values:
    if value == "enroot":
        raise _Rejected(_ENROOT)
    if value != "singularity":
        raise _Rejected("must be singularity; the key is now runtime.name")
    return {"runtime.name": "singularity"}


def _options(value: Any) -> Values:
    """Split the items: the Slurm plugin put them into bash as they were."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return {"runtime.options": value}
    try:
        return {"runtime.options": [word for item in value for word in shlex.split(item)]}
    except ValueError as error:
        raise _Rejected(f"cannot be split into words: {error}") from None


UNDERSTOOD: Mapping[str, Callable[[Any], Values]] = {
    "volumes.scratch_area": _same("volumes.scratch"),
    "volumes.apptainer_cachedir": _same("images.cache"),
    "volumes.image_dir": _same("images.directory"),
    "volumes.cvmfs_unpacked_path": _same("images.unpacked"),
    "volumes.additional_directories_in_path": _same("environment.path"),
    "apptainer.executable": _program("apptainer"),
    "apptainer.nvidia_support": _gpu,
    "apptainer.tmp_dir_mode": _same("apptainer.tmp_dir"),
    "slurm.header": _same("script.header"),
    "slurm.footer": _same("script.footer"),
    "CommandPrefix": _same("script.header"),
    "ImagePrefix": _same("images.prefix"),
    "SingularityPath": _program("singularity"),
    "SingularityDefaultOptions": _options,
    "ContainerRuntime": _container_runtime,
    "BashPath": _same("script.bash"),
}


def translate(raw: Mapping[Any, Any], name: str) -> tuple[dict[Any, Any], dict[str, str]]:
    """Return the mapping with new keys only, and for each new key the old one it came from."""
    for key in _keys(raw):
        if key not in UNDERSTOOD and _reason(key):
            raise ConfigError(f"{name}: {key}", _reason(key))
    current = _without_old(raw)
    origins: dict[str, str] = {}
    for key, convert in UNDERSTOOD.items():
        value = _value(raw, key)
        if value is not None:
            try:
                _put(current, origins, key, convert(value))
            except _Rejected as error:
                raise ConfigError(f"{name}: {key}", str(error)) from None
    if origins:
        is_of_slurm = any("." not in old for old in origins.values())
        _add_default(current, "runtime", "name", "singularity" if is_of_slurm else "apptainer")
        if is_of_slurm:
            _add_default(current, "rules", "annotations", ["*", *ON_THE_NODE])
    return current, origins


def _keys(raw: Mapping[Any, Any]) -> Iterator[str]:
    """Yield every key of the file as section.key; what is no section has one part."""
    for section, below in raw.items():
        if isinstance(below, dict) and section not in REFUSED:
            yield from (f"{section}.{key}" for key in below)
        elif below is not None or section in REFUSED:
            yield str(section)


def _reason(key: str) -> str:
    return REFUSED.get(key) or REFUSED.get(key.partition(".")[0] + ".*", "")


def _without_old(raw: Mapping[Any, Any]) -> dict[Any, Any]:
    current: dict[Any, Any] = {}
    for section, below in raw.items():
        if section in UNDERSTOOD or f"{section}.*" in REFUSED:
            continue
        current[section] = below
        if isinstance(below, dict):
            kept = {key: v for key, v in below.items() if f"{section}.{key}" not in UNDERSTOOD}
            current[section] = kept
    return current


def _value(raw: Mapping[Any, Any], key: str) -> Any:
    """Return the value of an old key; null was the old way to say that there is none."""
    section, dot, below = key.partition(".")
    value = raw.get(section)
    if dot:
        return value.get(below) if isinstance(value, dict) else None
    return value


def _put(current: dict[Any, Any], origins: dict[str, str], old: str, values: Values) -> None:
    for new, value in values.items():
        section, _, key = new.partition(".")
        if current.get(section) is None:
            current[section] = {}
        if not isinstance(current[section], dict):
            return  # the schema has an error for it
        if key in current[section]:
            if (old, origins.get(new)) == ("ContainerRuntime", "SingularityPath"):
                continue  # its "singularity" is the family, the program's name says which one
            other = origins.get(new, new)
            raise _Rejected(f"is about the same as {other}: keep one of them, as {new}")
        current[section][key] = value
        origins[new] = old


def _add_default(current: dict[Any, Any], section: str, key: str, value: Any) -> None:
    """Set what the older systems always had: a runtime, never "host", and all annotations."""
    below = current.get(section) or {}
    if isinstance(below, dict) and key not in below:
        current[section] = {**below, key: value}
