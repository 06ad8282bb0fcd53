"""Reading a pod of a known shape: only what it does not share with others (see ``shapes.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from templates.containers import read_own
from templates.pod import Container, Mount, Pod, Volume
from templates.shapes import (
    GAP,
    Shape,
    ShapedPod,
    Shapes,
    may_share,
    outline_of,
    runs_whole,
)
from templates.spec import Identity, Source, context_of, hostname_of, read_identity, read_pod

shapes = Shapes()

_WHERE = "pod"
_SPEC = f"{_WHERE}.spec"
_LISTS = ("initContainers", "containers")
# Where, in the fields of Pod and of Container, those that pods of a shape share begin and end.
_OF_IDENTITY = Pod._fields.index("containers")
_SHARED_FROM, _SHARED_TO = map(Pod._fields.index, ("restart_policy", "hostname"))
_OWN_FROM, _OWN_TO = map(Container._fields.index, ("command", "working_dir"))


def read_shaped_pod(raw: dict[str, Any], source: Source) -> Pod:
    """The same pod that ``read_pod`` makes of it, or the same complaint."""
    spec = raw.get("spec")
    if type(spec) is not dict or not shapes.is_worth_a_look():
        return read_pod(raw, _WHERE, source)
    outline = outline_of(spec)
    if outline is None:
        return read_pod(raw, _WHERE, source)
    shape = shapes.find(outline.key)
    if shape is not None:
        identity = read_identity(raw, spec, _WHERE)
        if runs_whole(identity.annotations):
            return _filled(shape, outline.token_volume, identity, spec, source)
    pod = read_pod(raw, _WHERE, source)
    if shape is not None or shapes.is_new(outline.key):
        return pod
    if may_share(spec, pod.annotations, outline):
        shapes.keep(outline.key, Shape(_with_gaps(pod, outline.token_volume)))
    return pod


def _with_gaps(pod: Pod, token_volume: str) -> Pod:
    """What a pod shares with others, and nothing else of it."""
    nobody = Pod("", "", "", {}, {}, (), ())
    containers = [_container(c, ((), (), ()), token_volume, GAP) for c in pod.containers]
    volumes = _volumes(pod.volumes, token_volume, GAP)
    shared = pod[_SHARED_FROM:_SHARED_TO]
    return Pod._make(
        (*nobody[:_OF_IDENTITY], tuple(containers), volumes, *shared, *nobody[_SHARED_TO:])
    )


def _filled(
    shape: Shape, token_volume: str, identity: Identity, spec: Mapping[str, Any], source: Source
) -> Pod:
    """The pod of this shape that a spec is about."""
    known = shape.pod
    context = context_of(identity, spec, _SPEC, source)
    containers = []
    left = iter(known.containers)
    for key in _LISTS:
        for place, raw in enumerate(spec.get(key, ())):
            read = read_own(raw, f"{_SPEC}.{key}[{place}]", source.variables, context)
            containers.append(_container(next(left), read, GAP, token_volume))
    hostname = hostname_of(spec, _SPEC, identity.name)
    own = hostname, source.config_maps, source.secrets, source.projected
    shared = _volumes(known.volumes, GAP, token_volume), *known[_SHARED_FROM:_SHARED_TO]
    last = source.job_script, source.job_config
    pod = ShapedPod._make((*identity[:_OF_IDENTITY], tuple(containers), *shared, *own, *last))
    pod.shape, pod.token_volume = shape, token_volume
    return pod


def _container(shared: Container, own: tuple[Any, ...], old: str, new: str) -> Container:
    """The container with its own command, arguments and variables, and a volume renamed."""
    rest = shared[_OWN_TO:]
    if old and new:
        mounts = [Mount(new, *m[1:]) if m.volume == old else m for m in shared.mounts]
        rest = (shared.working_dir, tuple(mounts), *shared[_OWN_TO + 2 :])
    return Container._make(shared[:_OWN_FROM] + own + rest)


def _volumes(volumes: tuple[Volume, ...], old: str, new: str) -> tuple[Volume, ...]:
    if not (old and new):
        return volumes
    return tuple([Volume(new, *v[1:]) if v.name == old else v for v in volumes])
