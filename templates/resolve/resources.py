"""The total requests of a pod, by the rule by which Kubernetes schedules pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from templates.common.constants import is_gpu
from templates.common.quantity import byte_count, cpu_milli
from templates.pod.model import INIT, Container, Pod

_CPU = "cpu"
_MEMORY = "memory"
_STORAGE = "ephemeral-storage"
_WITH_A_FIELD = frozenset((_CPU, _MEMORY, _STORAGE))  # resources with a field in Totals
_POD_LEVEL = (_CPU, _MEMORY, "hugepages-")  # spec.resources of a pod may override these

_Amounts = dict[str, int]  # thousandths of a CPU, bytes or pieces by name of resource


class Totals(NamedTuple):
    """All requests of a pod together; 0 or nothing means that it requests none."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: Mapping[str, int] = {}
    ephemeral_storage_bytes: int = 0
    cpu_limit_milli: int = 0
    """0: no limit, as soon as one container has none; that is how the kubelet sees it."""
    memory_limit_bytes: int = 0
    """The same."""
    other: Mapping[str, str] = {}
    """Everything else (hugepages, network devices, ...), rounded up to whole numbers."""


def totals(pod: Pod) -> Totals:
    """Sum what runs at once, take the maximum of what runs in turn, and add the overhead."""
    overhead = _amounts(pod.overhead) if pod.overhead else {}
    limits = _limits(pod, overhead)
    requested = _combine([(c.kind, _requests(c)) for c in pod.containers])
    if pod.requests or pod.limits:
        requested.update(_pod_requests(pod, requested))
    if overhead:
        requested = _add(requested, overhead)
    named = [name for name in requested if name not in _WITH_A_FIELD and requested[name]]
    return Totals(
        requested.get(_CPU, 0),
        requested.get(_MEMORY, 0),
        {name: requested[name] for name in named if is_gpu(name)},
        requested.get(_STORAGE, 0),
        limits.get(_CPU, 0),
        limits.get(_MEMORY, 0),
        {name: str(requested[name]) for name in named if not is_gpu(name)},
    )


def _amounts(quantities: Mapping[str, str]) -> _Amounts:
    return {
        name: cpu_milli(text, name) if name == _CPU else byte_count(text, name)
        for name, text in quantities.items()
    }


def _requests(container: Container) -> _Amounts:
    """Return the requests; a limit without one counts as request, as in the API server."""
    if not container.limits:
        return _amounts(container.requests) if container.requests else {}
    return _amounts({**container.limits, **container.requests})


def _combine(containers: Iterable[tuple[str, _Amounts]]) -> _Amounts:
    """Return the peak over the pod's life; containers come in their order of start."""
    running: _Amounts = {}  # sidecars, and main containers on top of them
    peak: _Amounts = {}
    for kind, amounts in containers:
        together = amounts
        if running:
            together = {name: running.get(name, 0) + value for name, value in amounts.items()}
        if kind != INIT:
            running.update(together)
        _raise_peak(peak, together)
    return peak


def _add(first: Mapping[str, int], second: Mapping[str, int]) -> _Amounts:
    names = (*first, *(name for name in second if name not in first))
    return {name: first.get(name, 0) + second.get(name, 0) for name in names}


def _raise_peak(peak: _Amounts, amounts: Mapping[str, int]) -> None:
    for name, value in amounts.items():
        if value > peak.get(name, -1):
            peak[name] = value


def _overrides(quantities: Mapping[str, str]) -> _Amounts:
    allowed = {name: text for name, text in quantities.items() if name.startswith(_POD_LEVEL)}
    return _amounts(allowed)


def _pod_requests(pod: Pod, requested: Mapping[str, int]) -> _Amounts:
    """Return the pod's own requests; its own limits if no container requests any either."""
    limits = _overrides(pod.limits)
    missing = {name: value for name, value in limits.items() if not requested.get(name)}
    return {**missing, **_overrides(pod.requests)}


def _limits(pod: Pod, overhead: Mapping[str, int]) -> _Amounts:
    """Return limits of cpu and memory; a container without one leaves the pod without one."""
    limits: _Amounts = {}
    if all(container.limits for container in pod.containers):
        every = [(c.kind, _amounts(c.limits)) for c in pod.containers]
        limits = _combine(every)
        for name in (_CPU, _MEMORY):
            if not all(amounts.get(name) for _, amounts in every):
                limits.pop(name, None)
    if pod.limits:
        limits.update(_overrides(pod.limits))
    return {name: value + overhead.get(name, 0) for name, value in limits.items()}
