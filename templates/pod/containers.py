"""One container of a pod: from Kubernetes' JSON to a checked ``Container``.

This runs for every container of every create request. That is why it looks at a field before it
calls anything for it, and why paths of fields are made only for complaints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from posixpath import normpath
from typing import Any, NamedTuple, Optional

from templates.common.errors import PodRejected
from templates.common.quantity import quantities_at
from templates.common.validation import (
    flag_at,
    number_at,
    object_at,
    one_of,
    text_at,
    texts_at,
    wrong,
)
from templates.pod.environment import expand, missing_names
from templates.pod.model import INIT, Container, Mount, Security
from templates.pod.probes import read_hook, read_ports, read_probe
from templates.pod.variables import Context, VariableReader

# The kernel takes no single argument or variable longer than this, less what follows it (a NUL).
LONGEST_ARGUMENT = 131072 - 1
# Apptainer passes a variable on with a prefix of up to 16 bytes before its name.
LONGEST_VARIABLE = LONGEST_ARGUMENT - 16
LONGEST_ENVIRONMENT = 1536 * 1024  # all arguments and variables; the kernel's limit is about 2 MiB
_SURELY_SHORT = LONGEST_VARIABLE // 4  # so many characters are never too many bytes

_LONGEST_PATH = 4096
_MESSAGE_PATH = "/dev/termination-log"
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_NOT_ON_INIT = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_NO_SECURITY = Security()
# What a container's securityContext may say that is handed on to another cluster as it is.
_FOR_CLUSTERS = ("allowPrivilegeEscalation", "seccompProfile")
_MOUNT_EXTRAS = frozenset(("subPath", "subPathExpr", "recursiveReadOnly"))
_EXTRAS = frozenset((*_NOT_ON_INIT, "ports", "restartPolicyRules", "volumeDevices"))


class Surroundings(NamedTuple):
    """What the containers of one pod share."""

    volumes: Set[str]
    security: Mapping[str, Any]  # the pod's own securityContext, checked
    variables: VariableReader
    context: Context


def read_container(
    raw: dict[str, Any], name: str, kind: str, where: str, pod: Surroundings
) -> Container:
    """The container; its name and kind are known to the caller already."""
    image = raw.get("image")
    if type(image) is not str or not _is_image(image):
        raise PodRejected(f"{where}.image", "must be an image without spaces")
    env = pod.variables(pod.context, raw, where)
    command = _words(raw, "command", where, env)
    args = _words(raw, "args", where, env)
    if len("".join((*env, *env.values(), *command, *args))) > _SURELY_SHORT:
        _check_sizes(where, env, command, args)
    resources = object_at(raw, "resources", where)
    place = f"{where}.resources"
    extras = {} if _EXTRAS.isdisjoint(raw) else _read_extras(raw, where, kind)
    container = Container(
        name,
        kind,
        image,
        command,
        args,
        tuple(env.items()),
        text_at(raw, "workingDir", where),
        _read_mounts(raw, where, pod.volumes, env),
        quantities_at(resources, "requests", place) if resources else {},
        quantities_at(resources, "limits", place) if resources else {},
        message_path=_message_path(raw, where),
        message_from_logs=_message_from_logs(raw, where),
        pull_policy=_pull_policy(raw, where, image),
        security=_merge_security(raw, where, pod.security),
    )
    return container._replace(**extras) if extras else container


def _read_extras(raw: Mapping[str, Any], where: str, kind: str) -> dict[str, Any]:
    """The fields that few containers have, by the name of their field of ``Container``."""
    if kind == INIT:
        _refuse_on_init(raw, where)
    if raw.get("volumeDevices"):
        raise PodRejected(f"{where}.volumeDevices", "block devices are not supported")
    if raw.get("restartPolicyRules"):
        raise PodRejected(f"{where}.restartPolicyRules", "not supported; the restartPolicy counts")
    if object_at(raw, "lifecycle", where).get("stopSignal"):
        raise PodRejected(f"{where}.lifecycle.stopSignal", "not supported; it is always SIGTERM")
    ports = read_ports(raw, where)
    return {
        "startup": read_probe(raw, "startupProbe", where, ports),
        "liveness": read_probe(raw, "livenessProbe", where, ports),
        "readiness": read_probe(raw, "readinessProbe", where, ports),
        "post_start": read_hook(raw, "postStart", where, ports),
        "pre_stop": read_hook(raw, "preStop", where, ports),
    }


def _is_image(text: str) -> bool:
    return text != "" and text.isprintable() and " " not in text


def _refuse_on_init(raw: Mapping[str, Any], where: str) -> None:
    for key in _NOT_ON_INIT:
        if raw.get(key):
            raise PodRejected(
                f"{where}.{key}", "an init container has it only with restartPolicy Always"
            )


def _words(raw: Mapping[str, Any], key: str, where: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """``command`` or ``args``; nobody before us has expanded ``$(NAME)`` in them."""
    words = raw.get(key)
    if words is None:
        return ()
    try:
        plain = type(words) is list and "$" not in "".join(words)
    except TypeError:
        plain = False
    if plain:
        return tuple(words)
    return tuple([expand(word, env, f"{where}.{key}") for word in texts_at(raw, key, where)])


def _check_sizes(
    where: str, env: Mapping[str, str], command: Sequence[str], args: Sequence[str]
) -> None:
    """Refuse what the kernel would refuse when the container starts, as that is hard to explain."""
    total = 0
    for name, value in env.items():
        size = len(name.encode()) + 1 + len(value.encode())
        total += size
        if size > LONGEST_VARIABLE:
            raise PodRejected(
                f"{where}.env",
                f"variable {name[:80]} takes {size} bytes with its name; "
                f"more than {LONGEST_VARIABLE} cannot be handed to a program",
            )
    for word in (*command, *args):
        size = len(word.encode())
        total += size
        if size > LONGEST_ARGUMENT:
            raise PodRejected(
                where,
                f"an argument takes {size} bytes; "
                f"more than {LONGEST_ARGUMENT} cannot be handed to a program",
            )
    if total > LONGEST_ENVIRONMENT:
        raise PodRejected(
            where,
            f"variables and arguments take {total} bytes together; "
            f"more than {LONGEST_ENVIRONMENT} cannot be handed to a program",
        )


@lru_cache(maxsize=1024)
def _absolute(path: str) -> Optional[str]:
    """The path from ``/``, normalised; None when it cannot be mounted on."""
    if ":" in path or "\0" in path:
        return None
    clean = normpath(f"/{path.lstrip('/')}")
    return clean if clean != "/" else None


@lru_cache(maxsize=1024)
def _relative(path: str) -> Optional[str]:
    """The path below a volume, normalised; None when it leaves the volume."""
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        return None
    clean = normpath(path)
    return "" if clean == "." else clean


def _read_mounts(
    raw: Mapping[str, Any], where: str, volumes: Set[str], env: Mapping[str, str]
) -> tuple[Mount, ...]:
    entries = raw.get("volumeMounts")
    if entries is None:
        return ()
    if type(entries) is not list:
        raise wrong(f"{where}.volumeMounts", "a list", entries)
    mounts: dict[str, Mount] = {}
    for index, entry in enumerate(entries):
        if type(entry) is not dict:
            raise wrong(f"{where}.volumeMounts[{index}]", "an object", entry)
        volume = entry.get("name")
        if type(volume) is not str or volume not in volumes:
            raise _no_volume(volume, f"{where}.volumeMounts[{index}].name")
        text = entry.get("mountPath")
        path = _absolute(text) if type(text) is str and len(text) <= _LONGEST_PATH else None
        if path is None or path in mounts:
            raise _no_target(text, path, f"{where}.volumeMounts[{index}].mountPath")
        read_only = entry.get("readOnly", False)
        if type(read_only) is not bool:
            if read_only is not None:
                raise wrong(f"{where}.volumeMounts[{index}].readOnly", "a boolean", read_only)
            read_only = False
        sub_path = ""
        if not _MOUNT_EXTRAS.isdisjoint(entry):
            sub_path = _read_extra(entry, f"{where}.volumeMounts[{index}]", env)
        mounts[path] = Mount(volume, path, read_only, sub_path)
    return tuple(mounts.values())


def _no_volume(volume: object, where: str) -> PodRejected:
    if type(volume) is not str:
        return wrong(where, "the name of a volume", volume)
    return PodRejected(where, f"the pod has no volume '{volume[:80]}'")


def _no_target(text: object, path: Optional[str], where: str) -> PodRejected:
    if type(text) is not str:
        return wrong(where, "a path", text)
    if path is None:
        return PodRejected(where, "must be a path below /, without ':'")
    return PodRejected(where, f"{path} is mounted on twice")


def _read_extra(entry: Mapping[str, Any], where: str, env: Mapping[str, str]) -> str:
    """What few mounts have: a path inside the volume, which it returns."""
    if entry.get("recursiveReadOnly") == "Enabled":
        what = "not supported: what is mounted below stays as it is"
        raise PodRejected(f"{where}.recursiveReadOnly", what)
    key = "subPath"
    text = text_at(entry, key, where)
    expression = text_at(entry, "subPathExpr", where)
    if expression:
        if text:
            raise PodRejected(where, "must not have both subPath and subPathExpr")
        key = "subPathExpr"
        for name in missing_names(expression, env):
            raise PodRejected(f"{where}.{key}", f"variable '{name}' is not set")
        text = expand(expression, env, f"{where}.{key}")
    path = _relative(text) if len(text) <= _LONGEST_PATH else None
    if path is None:
        raise PodRejected(f"{where}.{key}", "must be a path inside the volume, without '..'")
    return path


def _message_path(raw: Mapping[str, Any], where: str) -> str:
    text = raw.get("terminationMessagePath")
    if text is None or text in (_MESSAGE_PATH, ""):
        return _MESSAGE_PATH
    path = _absolute(text) if type(text) is str and len(text) <= _LONGEST_PATH else None
    if path is None:
        raise _no_target(text, path, f"{where}.terminationMessagePath")
    return path


def _message_from_logs(raw: Mapping[str, Any], where: str) -> bool:
    policy = raw.get("terminationMessagePolicy")
    if policy is None or policy in ("File", ""):
        return False
    if policy not in _MESSAGE_POLICIES:
        raise one_of(f"{where}.terminationMessagePolicy", _MESSAGE_POLICIES, policy)
    return True


def _pull_policy(raw: Mapping[str, Any], where: str, image: str) -> str:
    """The policy; when absent what the API server makes of the image's tag."""
    policy = raw.get("imagePullPolicy")
    if type(policy) is str and policy in _PULL_POLICIES:
        return policy
    if policy is not None and policy != "":
        raise one_of(f"{where}.imagePullPolicy", _PULL_POLICIES, policy)
    name, has_digest, _ = image.partition("@")
    _, has_tag, tag = name.rpartition("/")[2].partition(":")
    if tag == "latest" or (not has_tag and not has_digest):
        return "Always"
    return "IfNotPresent"


def check_pod_security(spec: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The pod's securityContext, with those fields checked that containers inherit."""
    context = object_at(spec, "securityContext", where)
    if context:
        place = f"{where}.securityContext"
        number_at(context, "runAsUser", place)
        number_at(context, "runAsGroup", place)
        flag_at(context, "runAsNonRoot", place)
    return context


def _merge_security(raw: Mapping[str, Any], where: str, pod: Mapping[str, Any]) -> Security:
    """What the container says wins over what the pod says, field by field."""
    if not pod and "securityContext" not in raw:
        return _NO_SECURITY
    own = object_at(raw, "securityContext", where)
    place = f"{where}.securityContext"
    user = number_at(own, "runAsUser", place)
    group = number_at(own, "runAsGroup", place)
    non_root = flag_at(own, "runAsNonRoot", place)
    capabilities = object_at(own, "capabilities", place)
    return Security(
        run_as_user=pod.get("runAsUser") if user is None else user,
        run_as_group=pod.get("runAsGroup") if group is None else group,
        run_as_non_root=bool(pod.get("runAsNonRoot") if non_root is None else non_root),
        privileged=bool(flag_at(own, "privileged", place)),
        read_only_root=bool(flag_at(own, "readOnlyRootFilesystem", place)),
        add_capabilities=tuple(texts_at(capabilities, "add", f"{place}.capabilities")),
        drop_capabilities=tuple(texts_at(capabilities, "drop", f"{place}.capabilities")),
        others={key: own[key] for key in _FOR_CLUSTERS if key in own},
    )
