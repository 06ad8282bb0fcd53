"""Probes and lifecycle hooks of a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from templates.common.errors import PodRejected
from templates.common.names import is_label
from templates.common.validation import (
    number_at,
    object_at,
    objects_at,
    text_at,
    texts_at,
    wrong_choice,
    wrong_type,
)
from templates.pod.model import Action, Probe

_SCHEMES = ("HTTP", "HTTPS")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NO_GRPC = "grpc probes are not supported; use exec, httpGet or tcpSocket"


def read_ports(container: Mapping[str, Any], field: str) -> dict[str, int]:
    """Return the named ports of a container; ports without a name are only checked."""
    named: dict[str, int] = {}
    for index, port in enumerate(objects_at(container, "ports", field)):
        subfield = f"{field}.ports[{index}]"
        number = number_at(port, "containerPort", subfield)
        if number is None or not 1 <= number <= 65535:
            raise PodRejected(f"{subfield}.containerPort", "must be from 1 to 65535")
        name = text_at(port, "name", subfield)
        if name and not is_label(name):
            raise PodRejected(f"{subfield}.name", "must be lower-case letters, digits and dashes")
        named.setdefault(name, number)
    return named


def _read_port(holder: Mapping[str, Any], field: str, ports: Mapping[str, int]) -> int:
    port = holder.get("port")
    if type(port) is str and port:
        named = ports.get(port)
        if named is None and port.isdigit() and port.isascii() and len(port) <= 5:
            named = int(port)  # as the kubelet does with a name that no port has
        if named is None:
            raise PodRejected(f"{field}.port", f"the container has no port '{port[:80]}'")
        port = named
    if type(port) is not int:
        raise wrong_type(f"{field}.port", "a number or the name of a port", port)
    if not 1 <= port <= 65535:
        raise PodRejected(f"{field}.port", "must be from 1 to 65535")
    return port


def _check_line(field: str, text: str) -> str:
    """Refuse text that would begin a new line in an HTTP request."""
    if not text.isprintable():
        raise PodRejected(field, "must not contain control characters")
    return text


def _read_headers(http: Mapping[str, Any], field: str) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    for index, header in enumerate(objects_at(http, "httpHeaders", field)):
        subfield = f"{field}.httpHeaders[{index}]"
        name = _check_line(f"{subfield}.name", text_at(header, "name", subfield))
        if not name or ":" in name or " " in name:
            raise PodRejected(f"{subfield}.name", "must be the name of a header")
        headers.append((name, _check_line(f"{subfield}.value", text_at(header, "value", subfield))))
    return tuple(headers)


def _read_exec(holder: Mapping[str, Any], field: str) -> Action:
    command = texts_at(holder, "command", field)
    if not command:
        raise PodRejected(f"{field}.command", "must not be empty")
    return Action("exec", command=tuple(command))


def _read_http(holder: Mapping[str, Any], field: str, ports: Mapping[str, int]) -> Action:
    scheme = text_at(holder, "scheme", field) or "HTTP"
    if scheme not in _SCHEMES:
        raise wrong_choice(f"{field}.scheme", _SCHEMES, scheme)
    path = _check_line(f"{field}.path", text_at(holder, "path", field)) or "/"
    return Action(
        "http",
        scheme=scheme.lower(),
        host=_check_line(f"{field}.host", text_at(holder, "host", field)),
        port=_read_port(holder, field, ports),
        path=path if path.startswith("/") else f"/{path}",
        headers=_read_headers(holder, field),
    )


def _read_tcp(holder: Mapping[str, Any], field: str, ports: Mapping[str, int]) -> Action:
    host = _check_line(f"{field}.host", text_at(holder, "host", field))
    return Action("tcp", host=host, port=_read_port(holder, field, ports))


def _read_action(
    holder: Mapping[str, Any], field: str, allowed: tuple[str, ...], ports: Mapping[str, int]
) -> Action:
    kinds = [kind for kind in _HANDLERS if holder.get(kind) is not None]
    if kinds == ["grpc"] and "grpc" not in allowed:
        raise PodRejected(f"{field}.grpc", _NO_GRPC)
    if len(kinds) != 1 or kinds[0] not in allowed:
        raise PodRejected(field, f"must have exactly one of {', '.join(allowed)}")
    kind = kinds[0]
    subfield = f"{field}.{kind}"
    handler = object_at(holder, kind, field)
    if kind == "exec":
        return _read_exec(handler, subfield)
    if kind == "httpGet":
        return _read_http(handler, subfield, ports)
    if kind == "tcpSocket":
        return _read_tcp(handler, subfield, ports)
    return Action("sleep", seconds=number_at(handler, "seconds", subfield) or 0)


def read_probe(
    container: Mapping[str, Any], key: str, field: str, ports: Mapping[str, int]
) -> Optional[Probe]:
    """Read a startup, liveness or readiness probe; zero means Kubernetes' default."""
    probe = container.get(key)
    if probe is None:
        return None
    subfield = f"{field}.{key}"
    if type(probe) is not dict:
        raise wrong_type(subfield, "an object", probe)
    successes = number_at(probe, "successThreshold", subfield) or 1
    if successes != 1 and key != "readinessProbe":
        raise PodRejected(f"{subfield}.successThreshold", f"must be 1 in a {key}")
    grace_period_s = number_at(probe, "terminationGracePeriodSeconds", subfield)
    if grace_period_s is not None and key == "readinessProbe":
        raise PodRejected(
            f"{subfield}.terminationGracePeriodSeconds", "a readinessProbe ends no container"
        )
    return Probe(
        action=_read_action(probe, subfield, ("exec", "httpGet", "tcpSocket"), ports),
        initial_delay_s=number_at(probe, "initialDelaySeconds", subfield) or 0,
        period_s=number_at(probe, "periodSeconds", subfield) or 10,
        timeout_s=number_at(probe, "timeoutSeconds", subfield) or 1,
        success_threshold=successes,
        failure_threshold=number_at(probe, "failureThreshold", subfield) or 3,
        grace_period_s=grace_period_s,
    )


def read_hook(
    container: Mapping[str, Any], key: str, field: str, ports: Mapping[str, int]
) -> Optional[Action]:
    """Read postStart or preStop; refuse a tcpSocket, which Kubernetes would ignore."""
    subfield = f"{field}.lifecycle"
    hook = object_at(container, "lifecycle", field).get(key)
    if hook is None:
        return None
    if type(hook) is not dict:
        raise wrong_type(f"{subfield}.{key}", "an object", hook)
    return _read_action(hook, f"{subfield}.{key}", ("exec", "httpGet", "sleep"), ports)
