"""The files of volumes, for a pod of a known shape (see ``shapes.py``) without a look at its spec.

The first pod's volumes say which keys of which objects become which files. Where another pod is not
as simple as that (an object or a key did not come, or a projected volume has other sources than a
token's), its volume is looked at as any other (``volumes.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional, Union

from templates.build_config import BuildConfig
from templates.errors import PodRejected
from templates.fields import object_at, objects_at, text_at
from templates.objects import are_keys
from templates.pod import Pod, Volume
from templates.shapes import GAP, has_shape, once, token_volume
from templates.shell import Word, inside
from templates.volumes import (
    File,
    Source,
    folder_of,
    item_path,
    mode_at,
    source_of,
    sources,
)

# Alike for all pods with the same volume.
_ALIKE = frozenset(("emptyDir", "ephemeral", "hostPath", "nfs"))


# What a projected volume tells its containers of their pod by files, where interLink has not.
_FIELDS = {"metadata.name": "name", "metadata.namespace": "namespace", "metadata.uid": "uid"}


class Filled(NamedTuple):
    """The volumes of a pod."""

    files: list[File]
    sources: Optional[Mapping[str, Source]]  # None: not looked at all, since the pod has a shape
    unusual: tuple[tuple[Any, ...], ...] = ()  # what may be otherwise in others of the shape
    names_pod: bool = False  # whether a place has the pod's own name in it
    token: str = ""  # the word for the token's volume


class _Keys(NamedTuple):
    """How a ConfigMap or Secret becomes files: those of its keys that are named, or all."""

    name: str
    is_secret: bool
    folder: str
    mode: int
    items: tuple[tuple[str, str, int], ...]  # key, path in the job's directory, mode

    def files(self, pod: Pod, volume: Volume) -> list[File]:
        """No file when not all that they take came with the pod."""
        _, is_secret, folder, mode, items = self
        content = (pod.secrets if is_secret else pod.config_maps).get(self.name)
        if content is None:
            return []
        data = content.data
        if not items:
            return [File(f"{folder}/{key}", data[key], mode, is_secret) for key in data]
        try:
            return [File(path, data[key], mode, is_secret) for key, path, mode in items]
        except KeyError:
            return []


class _Projection(NamedTuple):
    """How what interLink has resolved becomes files, and what we add of the pod itself."""

    mode: int
    expected: frozenset[str]  # paths that interLink has resolved if it resolves anything
    config_maps: frozenset[str]  # that it has looked into for them
    fields: tuple[tuple[str, str, int], ...]  # path, field of the pod, mode

    def files(self, pod: Pod, volume: Volume) -> list[File]:
        """No file when it is not as simple as that."""
        usual, expected, config_maps, fields = self
        given = pod.projected.get(volume.name, {})
        is_simple = are_keys(given) and expected.issubset(given)
        if not is_simple or not config_maps.isdisjoint(pod.config_maps):
            return []
        folder = folder_of(volume.name, secret=True)
        files = {
            path: File(f"{folder}/{path}", content, usual, True) for path, content in given.items()
        }
        for path, field, mode in fields:
            content = getattr(pod, field).encode()
            files[path] = File(f"{folder}/{path}", content, mode, True)
        return [*files.values()]


_Recipe = Union[_Keys, _Projection]


def fill_volumes(pod: Pod, config: BuildConfig) -> Filled:
    """The volumes that containers mount, and all files that lie in them."""
    if not has_shape(pod):
        found = sources(pod, config)
        return Filled([file for source in found.values() for file in source.files], found)
    token = token_volume(pod)
    files: list[File] = []
    unusual: list[tuple[Any, ...]] = []
    word = Word("")
    for index, recipe in once(pod, "volumes", config, lambda: _recipes(pod)):
        volume = pod.volumes[index]
        made = [] if recipe is None else recipe.files(pod, volume)
        if made and volume.name == token:
            word = inside("$DIR", folder_of(token, secret=True))
        elif not made:
            source = source_of(pod, volume, config)
            made, place = [*source.files], source.word
            if volume.name == token:
                word, place = place, Word(GAP)
            unusual.append((index, place, *source[1:-1]))
        files += made
    named = any(pod.uid in place or pod.name in place for _, place, *_ in unusual)
    return Filled(files, None, tuple(unusual), named, word)


def _recipes(pod: Pod) -> list[tuple[int, Optional[_Recipe]]]:
    """Of each volume that is mounted and may hold files: its place in the pod, and the recipe."""
    used = {mount.volume for container in pod.containers for mount in container.mounts}
    return [
        (index, _recipe(volume))
        for index, volume in enumerate(pod.volumes)
        if volume.name in used and volume.kind not in _ALIKE
    ]


def _recipe(volume: Volume) -> Optional[_Recipe]:
    """None when it takes more than that, or there is something to complain of."""
    try:
        if volume.kind == "projected":
            return _projection(volume.source, volume.name)
        if volume.kind in ("configMap", "secret"):
            return _keys(volume.name, volume.kind == "secret", volume.source)
    except PodRejected:
        pass  # said when it is looked at
    return None


def _keys(name: str, is_secret: bool, source: Mapping[str, Any]) -> Optional[_Keys]:
    folder = folder_of(name, secret=is_secret)
    wanted = text_at(source, "secretName" if is_secret else "name", name)
    mode = mode_at(source, "defaultMode", name, 0o644)
    chosen = {
        item_path(item, name): (text_at(item, "key", name), mode_at(item, "mode", name, mode))
        for item in objects_at(source, "items", name)
    }
    if any(other.startswith(f"{path}/") for path in chosen for other in chosen):
        return None
    items = [(key, f"{folder}/{path}", mode) for path, (key, mode) in chosen.items()]
    return _Keys(wanted, is_secret, folder, mode, tuple(items))


def _projection(source: Mapping[str, Any], where: str) -> Optional[_Projection]:
    """That of a token's volume: a token, the key of a ConfigMap, and a field of the pod."""
    mode = mode_at(source, "defaultMode", where, 0o644)
    expected, config_maps, fields = [], [], []
    for part in objects_at(source, "sources", where):
        kinds = [kind for kind in part if part[kind] is not None]
        if kinds == ["serviceAccountToken"]:
            continue
        below = object_at(part, kinds[0], where) if len(kinds) == 1 else {}
        items = objects_at(below, "items", where)
        if kinds == ["configMap"] and items:
            config_maps.append(text_at(below, "name", where))
            expected += [item_path(item, where) for item in items]
        elif kinds == ["downwardAPI"]:
            for item in items:
                field = text_at(object_at(item, "fieldRef", where), "fieldPath", where)
                if field not in _FIELDS or item.get("resourceFieldRef"):
                    return None
                path, own = item_path(item, where), mode_at(item, "mode", where, mode)
                fields.append((path, _FIELDS[field], own))
        else:
            return None
    if not are_keys([path for path, _, _ in fields]):
        return None
    return _Projection(mode, frozenset(expected), frozenset(config_maps), tuple(fields))
