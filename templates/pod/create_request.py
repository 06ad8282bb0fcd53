"""interLink's create request: one JSON object with a pod and all that its volumes need.

Fits interLink 0.5 and 0.6; a list around the object, as before 0.5, is accepted too. interLink has
resolved the variables of the containers already and hands them over in no particular order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, TypeVar

from templates.common.errors import PodRejected
from templates.common.json_codec import has_more_values, load_json
from templates.common.validation import check_texts, object_at, objects_at, text_at, wrong_type
from templates.pod.attachments import read_config_map, read_name, read_projected, read_secret
from templates.pod.budget import MOST_VALUES
from templates.pod.model import Content, Pod
from templates.pod.spec import PodInputs, read_pod
from templates.pod.variables import read_variables

REQUEST = "request"  # the field of an error that leaves no pod to speak of

_Read = TypeVar("_Read")

# Only by such an escape can a NUL or a lone surrogate come in.
_SUSPICIOUS_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_MAX_DEPTH = 16  # levels of jobConfig that are cleaned of zero values; interLink's has three


class _Contents(NamedTuple):
    config_maps: dict[str, Content]
    secrets: dict[str, Content]
    projected: dict[str, Mapping[str, bytes]]


def read_create_request(body: bytes) -> Pod:
    """Read the pod that interLink wants to run; raise ``PodRejected`` and nothing else."""
    request = _decode(body)
    pod = request.get("pod")
    if type(pod) is not dict:
        raise wrong_type("pod", "an object", pod)
    inputs = PodInputs(
        read_variables,
        *_read_contents(request),
        job_script=text_at(request, "jobScript", "request"),
        job_config=_drop_zeros(object_at(request, "jobConfig", "request"), _MAX_DEPTH),
    )
    return read_pod(pod, "pod", inputs)


def _decode(body: bytes) -> dict[str, Any]:
    if has_more_values(body, MOST_VALUES):
        raise PodRejected(REQUEST, f"has more than {MOST_VALUES} values")
    try:
        request = load_json(body)
    except (ValueError, RecursionError) as error:
        raise PodRejected(REQUEST, f"is not JSON: {error}") from None
    if type(request) is list:
        if len(request) != 1:
            raise PodRejected(REQUEST, f"must hold one pod, not {len(request)}")
        request = request[0]
    if type(request) is not dict:
        raise wrong_type(REQUEST, "an object", request)
    escape = body.find(b"\\")  # one character is found far quicker than two
    if escape >= 0 and _SUSPICIOUS_ESCAPE.search(body, escape):
        check_texts("request.container", request.get("container"), allow_nul=True)
        for key in ("pod", "jobScript", "jobConfig"):
            check_texts(key, request.get(key))
    return request


def _read_contents(request: Mapping[str, Any]) -> _Contents:
    """Read ConfigMaps, Secrets and projected volumes; the same one comes once for every mount."""
    contents = _Contents({}, {}, {})
    for index, entry in enumerate(objects_at(request, "container", "request")):
        if entry.get("configMaps") is not None:
            _read_each(entry, "configMaps", index, contents.config_maps, read_config_map)
        if entry.get("secrets") is not None:
            _read_each(entry, "secrets", index, contents.secrets, read_secret)
        if entry.get("projectedvolumemaps") is not None:
            _read_each(entry, "projectedvolumemaps", index, contents.projected, read_projected)
    return contents


def _read_each(
    entry: Mapping[str, Any],
    key: str,
    container: int,
    found: dict[str, _Read],
    read: Callable[[dict[str, Any], str], _Read],
) -> None:
    raws = entry[key]
    if type(raws) is not list:
        raise wrong_type(f"request.container[{container}].{key}", "a list", raws)
    for index, raw in enumerate(raws):
        try:
            is_known = raw["metadata"]["name"] in found
        except (KeyError, TypeError):
            is_known = False  # it has no name, which is refused below
        if not is_known:
            field = f"request.container[{container}].{key}[{index}]"
            if type(raw) is not dict:
                raise wrong_type(field, "an object", raw)
            found[read_name(raw, field)] = read(raw, field)


def _drop_zeros(config: Mapping[str, Any], depth: int) -> dict[str, object]:
    """Drop zero values at every level: that is how interLink writes "not set"."""
    kept: dict[str, object] = {}
    for key, value in config.items():
        if type(value) is dict and depth:
            if any(value.values()):
                inner = _drop_zeros(value, depth - 1)
                if inner:
                    kept[key] = inner
        elif value:
            kept[key] = value
    return kept
