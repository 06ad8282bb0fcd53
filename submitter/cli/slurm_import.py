"""``interlink-submitter import-slurm-config``: from interLink's Slurm plugin to a submitter.yaml.

Every key of its SlurmConfig.yaml, and every variable that could replace one, gets a line in the
report: what it became, or why it is refused and what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from submitter.backends.slurm import options as slurm_options
from submitter.cli import slurm_import_flavors
from submitter.cli.config_file import EXAMPLE, load
from templates.common.errors import ConfigError
from templates.settings.files import parse_yaml, reading_file
from templates.site import file as build_config_file
from templates.site import legacy as legacy_config
from templates.site.build_config import ON_THE_NODE

PROGRAMS = {
    "SbatchPath": "sbatch",
    "ScancelPath": "scancel",
    "SqueuePath": "squeue",
    "SinfoPath": "sinfo",
}
# Variables of the old plugin -> the key that each replaces; empty if none.
VARIABLES: Mapping[str, str] = {
    "SIDECARPORT": "SidecarPort",
    "SBATCHPATH": "SbatchPath",
    "SCANCELPATH": "ScancelPath",
    "SINFOPATH": "SinfoPath",
    "SINGULARITYPATH": "SingularityPath",
    "TSOCKS": "Tsocks",
    "TSOCKSPATH": "TsocksPath",
    "SHARED_FS": "",
    "CUSTOMKUBECONF": "",
    "SLURMCONFIGPATH": "",
    "ENABLE_TRACING": "",
    "TELEMETRY_ENDPOINT": "",
    "TELEMETRY_UNIQUE_ID": "",
    "TELEMETRY_CA_CRT_FILEPATH": "",
    "TELEMETRY_CLIENT_CRT_FILEPATH": "",
    "TELEMETRY_CLIENT_KEY_FILEPATH": "",
    "TELEMETRY_INSECURE_SKIP_VERIFY": "",
}
DEFAULT_PATH = "/etc/interlink/SlurmConfig.yaml"
_TRACES = "refused: no traces are sent; the log says what becomes of each job"
_TSOCKS = (
    "refused: is not supported as a key: let build.script.header start the connection"
    " (ssh -f -N -D PORT LOGIN_NODE) and export what programs need (LD_PRELOAD, ALL_PROXY)"
)
REFUSED: Mapping[str, str] = {
    "SidecarPort": "refused: the submitter listens nowhere; it connects to nats.servers",
    "Socket": "refused: the submitter listens nowhere; it connects to nats.servers",
    "Namespace": "refused: it never had an effect; pods of all namespaces are taken, see policy",
    "VKConfigPath": "refused: it never had an effect",
    "SingularityPrefix": "refused: it never had an effect",
    "EnrootPrefix": "refused: it never had an effect",
    "EnrootPath": "refused: enroot is none of the runtimes of build.runtime.name",
    "EnrootDefaultOptions": "refused: enroot is none of the runtimes of build.runtime.name",
    "Tsocks": _TSOCKS,
    "TsocksPath": _TSOCKS,
    "TsocksLoginNode": _TSOCKS,
    "DefaultUID": "refused: jobs run as the user that the submitter runs as",
    "ResourceScriptPath": "refused: resources are found out by sinfo; fixed ones are `resources`",
    "SHARED_FS": "works always: the pool's directory is on the file system that all nodes share",
    "CUSTOMKUBECONF": "refused: it never had an effect; the submitter needs no Kubernetes",
    "SLURMCONFIGPATH": "is the file that is read where none is named on the command line",
    **{name: _TRACES for name in VARIABLES if name.startswith(("ENABLE_TRACING", "TELEMETRY_"))},
}


class Imported(NamedTuple):
    """The result of importing a file."""

    text: str  # submitter.yaml
    report: tuple[str, ...]  # a line for each key


class _Draft:
    """The new file while it is made."""

    def __init__(self) -> None:
        self.pool: dict[str, Any] = {"name": "mypool", "backend": "slurm"}
        self.options: dict[str, Any] = {}
        self.build: dict[str, Any] = {}
        self.logging: dict[str, Any] = {}
        self.lines: list[str] = []

    def report(self, key: str, message: str) -> None:
        self.lines.append(f"{key}: {message}")

    def document(self) -> dict[str, Any]:
        nats = EXAMPLE.nats
        found: dict[str, Any] = {
            "nats": {
                "servers": list(nats.servers),
                "inbox_prefix": nats.inbox_prefix,
                "nkey_file": nats.nkey_file,
            },
            "pools": [{**self.pool, "options": self.options, "build": self.build}],
        }
        return {**found, "logging": self.logging} if self.logging else found


def convert(text: str, name: str, variables: Mapping[str, str]) -> Imported:
    """Convert the old configuration; raise ``ConfigError`` if it cannot be read."""
    raw = parse_yaml(text, name)
    if not isinstance(raw, dict):
        raise ConfigError(name, "must be a mapping of keys")
    values = {str(key): value for key, value in raw.items()}
    draft = _Draft()
    for variable, key in VARIABLES.items():
        if variables.get(variable):
            message = f"replaces {key}" if key else REFUSED[variable]
            draft.report(variable, message)
            if key:
                values[key] = _parse_value(variables[variable])
    for key, value in values.items():
        _convert_key(draft, key, value, values)
    _finish(draft, values)
    written = yaml.safe_dump(draft.document(), sort_keys=False, allow_unicode=True)
    (pool,) = load(written, "what was made of it").pools
    slurm_options.load(pool.options, pool.name)
    return Imported(_TITLE + written, tuple(draft.lines))


_TITLE = """\
# Made from SlurmConfig.yaml by interlink-submitter import-slurm-config. Fill in nats and the pool's
# name; interlink-submitter sample explains every key, docs/slurm.md the options of the pool.
"""


def _parse_value(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), text)


def _convert_key(draft: _Draft, key: str, value: Any, values: Mapping[str, Any]) -> None:
    """Convert one key of the old file."""
    if value in (None, "", False, [], {}) and key != "ExportPodData":
        draft.report(key, "says nothing, and was left out")
    elif key in PROGRAMS:
        draft.options.setdefault("programs", {})[PROGRAMS[key]] = str(value)
        draft.report(key, f"is pools[0].options.programs.{PROGRAMS[key]}")
    elif key in legacy_config.UNDERSTOOD and "." not in key:
        _convert_build_key(draft, key, value, values)
    elif key in _CONVERTERS:
        draft.report(key, _CONVERTERS[key](draft, value, values))
    elif key in REFUSED:
        draft.report(key, REFUSED[key])
    else:
        draft.report(key, "refused: is no key of the Slurm plugin that is known here")


def _convert_build_key(draft: _Draft, key: str, value: Any, values: Mapping[str, Any]) -> None:
    if key == "ContainerRuntime" and value == "singularity" and values.get("SingularityPath"):
        draft.report(key, "is said by SingularityPath")
        return
    try:
        build_config_file.load(yaml.safe_dump({key: value}), key)
        found, _ = legacy_config.translate({key: value}, key)
    except ConfigError as error:
        draft.report(key, f"refused: {error.reason}")
        return
    names = []
    found.pop("rules", None)  # of every old file, and said at the end
    for section, below in found.items():
        for part, new in below.items():
            if part == "name" and key not in ("SingularityPath", "ContainerRuntime"):
                continue  # a default of the old format, not a choice of this file
            draft.build.setdefault(section, {})[part] = new
            names.append(f"build.{section}.{part}")
    draft.report(key, f"is pools[0].{', '.join(names)}")


def _finish(draft: _Draft, values: Mapping[str, Any]) -> None:
    draft.build.setdefault("runtime", {}).setdefault("name", "singularity")
    if "options" not in draft.build["runtime"] and "SingularityDefaultOptions" not in values:
        draft.report(
            "SingularityDefaultOptions", "was not given: --nv now follows from the pod's GPUs"
        )
    draft.build["rules"] = {"annotations": ["*", *ON_THE_NODE]}
    draft.report(
        "pools[0].build.rules.annotations",
        f"turns on what users of the Slurm plugin have: {', '.join(ON_THE_NODE)}. They act on the"
        " node as the submitter's user, outside of any container: take out what nobody uses",
    )
    draft.pool["policy"] = {"images": ["*", "/*"], "host_paths": ["/"], "runtime_options": ["*"]}
    draft.report(
        "pools[0].policy",
        "allows as image, to singularity-mounts and to singularity-options what the Slurm plugin"
        " did: every path and option of the node; write what your users need instead",
    )
    if "directory" not in draft.pool:
        draft.pool["directory"] = EXAMPLE.pools[0].directory
        if "DataRootFolder" not in values:
            draft.report("DataRootFolder", "was not given: fill in pools[0].directory")


# --- keys with a meaning of their own ------------------------------------------------------------


def _directory(draft: _Draft, value: Any, values: Mapping[str, Any]) -> str:
    path = str(value).rstrip("/")
    if not path.startswith("/"):
        return "refused: pools[0].directory must be an absolute path; fill it in"
    draft.pool["directory"] = f"{path}/interlink"
    return "is pools[0].directory, with a folder of its own (interlink) below it"


def _exported(draft: _Draft, value: Any, values: Mapping[str, Any]) -> str:
    return "works always: a pod's ConfigMaps, Secrets and volumes come with its job"


def _probes(draft: _Draft, value: Any, values: Mapping[str, Any]) -> str:
    return "works always: a pod's probes are honoured"


def _log_level(level: str) -> Any:
    def convert_level(draft: _Draft, value: Any, values: Mapping[str, Any]) -> str:
        draft.logging["level"] = level
        return f"is logging.level: {level}"

    return convert_level


def _taints(draft: _Draft, value: Any, values: Mapping[str, Any]) -> str:
    found = []
    if not isinstance(value, list) or not all(isinstance(taint, dict) for taint in value):
        return "refused: must be a list of taints, each with Key, Value and Effect"
    for taint in value:
        parts = {str(k).lower(): str(v or "") for k, v in taint.items()}
        found.append(f"{parts.get('key', '')}={parts.get('value', '')}:{parts.get('effect', '')}")
    draft.pool["taints"] = found
    return "is pools[0].taints, of the pool's Kueue flavor"


def _flavors(draft: _Draft, value: Any, values: Mapping[str, Any]) -> str:
    if not isinstance(value, dict):
        return "refused: must be a mapping of flavors"
    made = slurm_import_flavors.convert(value, str(values.get("DefaultFlavor") or ""))
    draft.options["flavors"] = made.flavors
    draft.lines += made.lines
    return "is pools[0].options.flavors: the first one that fits counts; see their order"


def _default_flavor(draft: _Draft, value: Any, values: Mapping[str, Any]) -> str:
    flavors = values.get("Flavors")
    if not isinstance(flavors, dict) or str(value) not in map(str, flavors):
        return "refused: there is no such flavor"
    return "is the first of pools[0].options.flavors that is not for GPUs: it takes what is left"


_CONVERTERS = {
    "DataRootFolder": _directory,
    "ExportPodData": _exported,
    "EnableProbes": _probes,
    "VerboseLogging": _log_level("debug"),
    "ErrorsOnlyLogging": _log_level("error"),
    "Taints": _taints,
    "Flavors": _flavors,
    "DefaultFlavor": _default_flavor,
}


def find_config(variables: Mapping[str, str]) -> Path:
    """Return where the old plugin would look for its file."""
    return Path(variables.get("SLURMCONFIGPATH") or DEFAULT_PATH)


def read(path: Path) -> str:
    """Return the text of the old file."""
    with reading_file(str(path)):
        return path.read_text(encoding="utf-8")
