"""One container of a pod: from Kubernetes' JSON to a checked ``Container``.

This runs for every container of every create request. That is why it looks at a field before it
calls anything for it, and why paths of fields are made only for errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain
from posixpath import normpath
from typing import Any, NamedTuple, Optional

from templates.common.errors import PodRejected
from templates.common.quantity import quantities_at
from templates.common.validation import (
    flag_at,
    number_at,
    object_at,
    text_at,
    texts_at,
    wrong_choice,
    wrong_type,
)
from templates.pod.budget import (
    LONGEST_ARGUMENT,
    LONGEST_ENVIRONMENT,
    LONGEST_NAME,
    LONGEST_VARIABLE,
    Budget,
)
from templates.pod.environment import expand, missing_names
from templates.pod.model import INIT, Container, Mount, Security
from templates.pod.probes import read_hook, read_ports, read_probe
from templates.pod.variables import Context, VariableReader

_SURELY_SHORT = LONGEST_VARIABLE // 4  # so many characters are never too many bytes

_LONGEST_PATH = 4096
_MESSAGE_PATH = "/dev/termination-log"
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_NOT_ON_INIT = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_NO_SECURITY = Security()
# Fields of a container's securityContext that are handed on to another cluster as they are.
_FOR_CLUSTERS = ("allowPrivilegeEscalation", "seccompProfile")
_MOUNT_EXTRAS = frozenset(("subPath", "subPathExpr", "recursiveReadOnly"))
_EXTRAS = frozenset((*_NOT_ON_INIT, "ports", "restartPolicyRules", "volumeDevices"))


class PodScope(NamedTuple):
    """Parts of a pod that its containers share."""

    volumes: Set[str]
    security: Mapping[str, Any]  # the pod's own securityContext, checked
    variables: VariableReader
    context: Context


def read_container(
    raw: dict[str, Any], name: str, kind: str, field: str, scope: PodScope
) -> Container:
    """Read a container, whose name and kind the caller knows already."""
    image = raw.get("image")
    if type(image) is not str or not _is_image(image):
        raise PodRejected(f"{field}.image", "must be an image without spaces")
    if len(image) > LONGEST_NAME:
        raise PodRejected(f"{field}.image", f"must have at most {LONGEST_NAME} characters")
    budget = scope.context.budget
    env = scope.variables(scope.context, raw, field)
    command = _read_words(raw, "command", field, env, budget)
    args = _read_words(raw, "args", field, env, budget)
    length = len("".join((*env, *env.values(), *command, *args)))
    if length > _SURELY_SHORT:
        _check_sizes(field, env, command, args)
    resources = object_at(raw, "resources", field)
    subfield = f"{field}.resources"
    extras = {} if _EXTRAS.isdisjoint(raw) else _read_extras(raw, field, kind, budget)
    container = Container(
        name,
        kind,
        image,
        command,
        args,
        tuple(env.items()),
        text_at(raw, "workingDir", field),
        _read_mounts(raw, field, scope, env),
        quantities_at(resources, "requests", subfield) if resources else {},
        quantities_at(resources, "limits", subfield) if resources else {},
        message_path=_read_message_path(raw, field),
        message_from_logs=_reads_message_from_logs(raw, field),
        pull_policy=_read_pull_policy(raw, field, image),
        security=_merge_security(raw, field, scope),
    )
    budget.take_container(container, length + len(container.working_dir), field)
    return container._replace(**extras) if extras else container


def _read_extras(raw: Mapping[str, Any], field: str, kind: str, budget: Budget) -> dict[str, Any]:
    """Read the fields that few containers have, by the name of their field of ``Container``."""
    if kind == INIT:
        _refuse_on_init(raw, field)
    if raw.get("volumeDevices"):
        raise PodRejected(f"{field}.volumeDevices", "block devices are not supported")
    if raw.get("restartPolicyRules"):
        raise PodRejected(f"{field}.restartPolicyRules", "not supported; the restartPolicy counts")
    if object_at(raw, "lifecycle", field).get("stopSignal"):
        raise PodRejected(f"{field}.lifecycle.stopSignal", "not supported; it is always SIGTERM")
    ports = read_ports(raw, field)
    probes = {
        "startup": read_probe(raw, "startupProbe", field, ports),
        "liveness": read_probe(raw, "livenessProbe", field, ports),
        "readiness": read_probe(raw, "readinessProbe", field, ports),
    }
    hooks = {
        "post_start": read_hook(raw, "postStart", field, ports),
        "pre_stop": read_hook(raw, "preStop", field, ports),
    }
    for action in (*[probe.action for probe in probes.values() if probe], *hooks.values()):
        if action is not None:
            headers = chain.from_iterable(action.headers)
            budget.take_words((action.host, action.path, *action.command, *headers), field)
    return {**probes, **hooks}


def _is_image(text: str) -> bool:
    return text != "" and text.isprintable() and " " not in text


def _refuse_on_init(raw: Mapping[str, Any], field: str) -> None:
    for key in _NOT_ON_INIT:
        if raw.get(key):
            raise PodRejected(
                f"{field}.{key}", "an init container has it only with restartPolicy Always"
            )


def _read_words(
    raw: Mapping[str, Any], key: str, field: str, env: Mapping[str, str], budget: Budget
) -> tuple[str, ...]:
    """Read ``command`` or ``args``; nobody before us has expanded ``$(NAME)`` in them."""
    values = raw.get(key)
    if values is None:
        return ()
    try:
        plain = type(values) is list and "$" not in "".join(values)
    except TypeError:
        plain = False
    if plain:
        return tuple(values)
    subfield = f"{field}.{key}"
    return tuple([expand(word, env, budget, subfield) for word in texts_at(raw, key, field)])


def _check_sizes(
    field: str, env: Mapping[str, str], command: Sequence[str], args: Sequence[str]
) -> None:
    """Refuse what the kernel would refuse when the container starts, as that is hard to explain."""
    total = 0
    for name, value in env.items():
        size = len(name.encode()) + 1 + len(value.encode())
        total += size
        if len(name) > LONGEST_NAME:
            reason = f"the name {name[:80]}... has more than {LONGEST_NAME} characters"
            raise PodRejected(f"{field}.env", reason)
        if size > LONGEST_VARIABLE:
            raise PodRejected(
                f"{field}.env",
                f"variable {name[:80]} takes {size} bytes with its name; "
                f"more than {LONGEST_VARIABLE} cannot be handed to a program",
            )
    for word in (*command, *args):
        size = len(word.encode())
        total += size
        if size > LONGEST_ARGUMENT:
            raise PodRejected(
                field,
                f"an argument takes {size} bytes; "
                f"more than {LONGEST_ARGUMENT} cannot be handed to a program",
            )
    if total > LONGEST_ENVIRONMENT:
        raise PodRejected(
            field,
            f"variables and arguments take {total} bytes together; "
            f"more than {LONGEST_ENVIRONMENT} cannot be handed to a program",
        )


@lru_cache(maxsize=1024)
def _clean_absolute(path: str) -> Optional[str]:
    """Return the path from ``/``, normalised; None if it cannot be mounted on."""
    if ":" in path or "\0" in path:
        return None
    clean = normpath(f"/{path.lstrip('/')}")
    return clean if clean != "/" else None


@lru_cache(maxsize=1024)
def _clean_relative(path: str) -> Optional[str]:
    """Return the path below a volume, normalised; None if it leaves the volume."""
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        return None
    clean = normpath(path)
    return "" if clean == "." else clean


def _read_mounts(
    raw: Mapping[str, Any], field: str, scope: PodScope, env: Mapping[str, str]
) -> tuple[Mount, ...]:
    entries = raw.get("volumeMounts")
    if entries is None:
        return ()
    if type(entries) is not list:
        raise wrong_type(f"{field}.volumeMounts", "a list", entries)
    volumes = scope.volumes
    mounts: dict[str, Mount] = {}
    for index, entry in enumerate(entries):
        if type(entry) is not dict:
            raise wrong_type(f"{field}.volumeMounts[{index}]", "an object", entry)
        volume = entry.get("name")
        if type(volume) is not str or volume not in volumes:
            raise _unknown_volume(volume, f"{field}.volumeMounts[{index}].name")
        text = entry.get("mountPath")
        path = _clean_absolute(text) if type(text) is str and len(text) <= _LONGEST_PATH else None
        if path is None or path in mounts:
            raise _bad_mount_path(text, path, f"{field}.volumeMounts[{index}].mountPath")
        read_only = entry.get("readOnly", False)
        if type(read_only) is not bool:
            if read_only is not None:
                raise wrong_type(f"{field}.volumeMounts[{index}].readOnly", "a boolean", read_only)
            read_only = False
        sub_path = ""
        if not _MOUNT_EXTRAS.isdisjoint(entry):
            sub_path = _read_sub_path(
                entry, f"{field}.volumeMounts[{index}]", env, scope.context.budget
            )
        mounts[path] = Mount(volume, path, read_only, sub_path)
    return tuple(mounts.values())


def _unknown_volume(volume: object, field: str) -> PodRejected:
    if type(volume) is not str:
        return wrong_type(field, "the name of a volume", volume)
    return PodRejected(field, f"the pod has no volume '{volume[:80]}'")


def _bad_mount_path(text: object, path: Optional[str], field: str) -> PodRejected:
    if type(text) is not str:
        return wrong_type(field, "a path", text)
    if path is None:
        return PodRejected(field, "must be a path below /, without ':'")
    return PodRejected(field, f"{path} is mounted on twice")


def _read_sub_path(
    entry: Mapping[str, Any], field: str, env: Mapping[str, str], budget: Budget
) -> str:
    """Return the path inside the volume to mount, with ``subPathExpr`` expanded."""
    if entry.get("recursiveReadOnly") == "Enabled":
        reason = "not supported: what is mounted below stays as it is"
        raise PodRejected(f"{field}.recursiveReadOnly", reason)
    key = "subPath"
    text = text_at(entry, key, field)
    expression = text_at(entry, "subPathExpr", field)
    if expression:
        if text:
            raise PodRejected(field, "must not have both subPath and subPathExpr")
        key = "subPathExpr"
        for name in missing_names(expression, env):
            raise PodRejected(f"{field}.{key}", f"variable '{name}' is not set")
        text = expand(expression, env, budget, f"{field}.{key}")
    path = _clean_relative(text) if len(text) <= _LONGEST_PATH else None
    if path is None:
        raise PodRejected(f"{field}.{key}", "must be a path inside the volume, without '..'")
    return path


def _read_message_path(raw: Mapping[str, Any], field: str) -> str:
    text = raw.get("terminationMessagePath")
    if text is None or text in (_MESSAGE_PATH, ""):
        return _MESSAGE_PATH
    path = _clean_absolute(text) if type(text) is str and len(text) <= _LONGEST_PATH else None
    if path is None:
        raise _bad_mount_path(text, path, f"{field}.terminationMessagePath")
    return path


def _reads_message_from_logs(raw: Mapping[str, Any], field: str) -> bool:
    policy = raw.get("terminationMessagePolicy")
    if policy is None or policy in ("File", ""):
        return False
    if policy not in _MESSAGE_POLICIES:
        raise wrong_choice(f"{field}.terminationMessagePolicy", _MESSAGE_POLICIES, policy)
    return True


def _read_pull_policy(raw: Mapping[str, Any], field: str, image: str) -> str:
    """Return the policy; if absent, the API server's default for the image's tag."""
    policy = raw.get("imagePullPolicy")
    if type(policy) is str and policy in _PULL_POLICIES:
        return policy
    if policy is not None and policy != "":
        raise wrong_choice(f"{field}.imagePullPolicy", _PULL_POLICIES, policy)
    name, has_digest, _ = image.partition("@")
    _, has_tag, tag = name.rpartition("/")[2].partition(":")
    if tag == "latest" or (not has_tag and not has_digest):
        return "Always"
    return "IfNotPresent"


def check_pod_security(spec: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """Return the pod's securityContext, with those fields checked that containers inherit."""
    context = object_at(spec, "securityContext", field)
    if context:
        subfield = f"{field}.securityContext"
        number_at(context, "runAsUser", subfield)
        number_at(context, "runAsGroup", subfield)
        flag_at(context, "runAsNonRoot", subfield)
    return context


def _merge_security(raw: Mapping[str, Any], field: str, scope: PodScope) -> Security:
    """Merge both securityContexts: the container's fields win over the pod's."""
    pod = scope.security
    if not pod and "securityContext" not in raw:
        return _NO_SECURITY
    own = object_at(raw, "securityContext", field)
    subfield = f"{field}.securityContext"
    user = number_at(own, "runAsUser", subfield)
    group = number_at(own, "runAsGroup", subfield)
    non_root = flag_at(own, "runAsNonRoot", subfield)
    capabilities = object_at(own, "capabilities", subfield)
    added = tuple(texts_at(capabilities, "add", f"{subfield}.capabilities"))
    dropped = tuple(texts_at(capabilities, "drop", f"{subfield}.capabilities"))
    scope.context.budget.take_words((*added, *dropped), subfield)
    return Security(
        run_as_user=pod.get("runAsUser") if user is None else user,
        run_as_group=pod.get("runAsGroup") if group is None else group,
        run_as_non_root=bool(pod.get("runAsNonRoot") if non_root is None else non_root),
        privileged=bool(flag_at(own, "privileged", subfield)),
        read_only_root=bool(flag_at(own, "readOnlyRootFilesystem", subfield)),
        add_capabilities=added,
        drop_capabilities=dropped,
        others={key: own[key] for key in _FOR_CLUSTERS if key in own},
    )
