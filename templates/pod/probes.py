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
    one_of,
    text_at,
    texts_at,
    wrong,
)
from templates.pod.model import Action, Probe

_SCHEMES = ("HTTP", "HTTPS")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NO_GRPC = "grpc probes are not supported; use exec, httpGet or tcpSocket"


def read_ports(container: Mapping[str, Any], where: str) -> dict[str, int]:
    """The named ports of a container; ports without a name are only checked."""
    named: dict[str, int] = {}
    for index, port in enumerate(objects_at(container, "ports", where)):
        place = f"{where}.ports[{index}]"
        number = number_at(port, "containerPort", place)
        if number is None or not 1 <= number <= 65535:
            raise PodRejected(f"{place}.containerPort", "must be from 1 to 65535")
        name = text_at(port, "name", place)
        if name and not is_label(name):
            raise PodRejected(f"{place}.name", "must be lower-case letters, digits and dashes")
        named.setdefault(name, number)
    return named


def _read_port(holder: Mapping[str, Any], where: str, ports: Mapping[str, int]) -> int:
    port = holder.get("port")
    if type(port) is str and port:
        named = ports.get(port)
        if named is None and port.isdigit() and port.isascii() and len(port) <= 5:
            named = int(port)  # as the kubelet does with a name that no port has
        if named is None:
            raise PodRejected(f"{where}.port", f"the container has no port '{port[:80]}'")
        port = named
    if type(port) is not int:
        raise wrong(f"{where}.port", "a number or the name of a port", port)
    if not 1 <= port <= 65535:
        raise PodRejected(f"{where}.port", "must be from 1 to 65535")
    return port


def _check_line(where: str, text: str) -> str:
    """Text that becomes part of an HTTP request must not begin a line of its own."""
    if not text.isprintable():
        raise PodRejected(where, "must not contain control characters")
    return text


def _read_headers(http: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    for index, header in enumerate(objects_at(http, "httpHeaders", where)):
        place = f"{where}.httpHeaders[{index}]"
        name = _check_line(f"{place}.name", text_at(header, "name", place))
        if not name or ":" in name or " " in name:
            raise PodRejected(f"{place}.name", "must be the name of a header")
        headers.append((name, _check_line(f"{place}.value", text_at(header, "value", place))))
    return tuple(headers)


def _read_exec(holder: Mapping[str, Any], where: str) -> Action:
    command = texts_at(holder, "command", where)
    if not command:
        raise PodRejected(f"{where}.command", "must not be empty")
    return Action("exec", command=tuple(command))


def _read_http(holder: Mapping[str, Any], where: str, ports: Mapping[str, int]) -> Action:
    scheme = text_at(holder, "scheme", where) or "HTTP"
    if scheme not in _SCHEMES:
        raise one_of(f"{where}.scheme", _SCHEMES, scheme)
    path = _check_line(f"{where}.path", text_at(holder, "path", where)) or "/"
    return Action(
        "http",
        scheme=scheme.lower(),
        host=_check_line(f"{where}.host", text_at(holder, "host", where)),
        port=_read_port(holder, where, ports),
        path=path if path.startswith("/") else f"/{path}",
        headers=_read_headers(holder, where),
    )


def _read_tcp(holder: Mapping[str, Any], where: str, ports: Mapping[str, int]) -> Action:
    host = _check_line(f"{where}.host", text_at(holder, "host", where))
    return Action("tcp", host=host, port=_read_port(holder, where, ports))


def _read_action(
    holder: Mapping[str, Any], where: str, allowed: tuple[str, ...], ports: Mapping[str, int]
) -> Action:
    kinds = [kind for kind in _HANDLERS if holder.get(kind) is not None]
    if kinds == ["grpc"] and "grpc" not in allowed:
        raise PodRejected(f"{where}.grpc", _NO_GRPC)
    if len(kinds) != 1 or kinds[0] not in allowed:
        raise PodRejected(where, f"must have exactly one of {', '.join(allowed)}")
    kind = kinds[0]
    place = f"{where}.{kind}"
    handler = object_at(holder, kind, where)
    if kind == "exec":
        return _read_exec(handler, place)
    if kind == "httpGet":
        return _read_http(handler, place, ports)
    if kind == "tcpSocket":
        return _read_tcp(handler, place, ports)
    return Action("sleep", seconds=number_at(handler, "seconds", place) or 0)


def read_probe(
    container: Mapping[str, Any], key: str, where: str, ports: Mapping[str, int]
) -> Optional[Probe]:
    """One of startupProbe, livenessProbe and readinessProbe; zero means Kubernetes' default."""
    probe = container.get(key)
    if probe is None:
        return None
    place = f"{where}.{key}"
    if type(probe) is not dict:
        raise wrong(place, "an object", probe)
    successes = number_at(probe, "successThreshold", place) or 1
    if successes != 1 and key != "readinessProbe":
        raise PodRejected(f"{place}.successThreshold", f"must be 1 in a {key}")
    grace_period_s = number_at(probe, "terminationGracePeriodSeconds", place)
    if grace_period_s is not None and key == "readinessProbe":
        raise PodRejected(
            f"{place}.terminationGracePeriodSeconds", "a readinessProbe ends no container"
        )
    return Probe(
        action=_read_action(probe, place, ("exec", "httpGet", "tcpSocket"), ports),
        initial_delay_s=number_at(probe, "initialDelaySeconds", place) or 0,
        period_s=number_at(probe, "periodSeconds", place) or 10,
        timeout_s=number_at(probe, "timeoutSeconds", place) or 1,
        success_threshold=successes,
        failure_threshold=number_at(probe, "failureThreshold", place) or 3,
        grace_period_s=grace_period_s,
    )


def read_hook(
    container: Mapping[str, Any], key: str, where: str, ports: Mapping[str, int]
) -> Optional[Action]:
    """postStart or preStop; a tcpSocket would be ignored by Kubernetes, so it is refused."""
    place = f"{where}.lifecycle"
    hook = object_at(container, "lifecycle", where).get(key)
    if hook is None:
        return None
    if type(hook) is not dict:
        raise wrong(f"{place}.{key}", "an object", hook)
    return _read_action(hook, f"{place}.{key}", ("exec", "httpGet", "sleep"), ports)
