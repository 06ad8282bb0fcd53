"""The files of volumes, for a pod of a known shape (see ``shapes.py``) without a look at its spec.

The first pod's volumes say which keys of which objects become which files. Where another pod is not
as simple as that (an object or a key did not come, or a token's volume has further sources), its
volume is looked at as any other (``volumes.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from templates.build_config import BuildConfig
from templates.errors import PodRejected
from templates.fields import objects_at, text_at
from templates.pod import Pod, Volume
from templates.shapes import GAP, once, token_volume
from templates.volumes import (
    File,
    Source,
    folder_of,
    item_path,
    mode_at,
    source_of,
    sources,
)

_ALIKE = frozenset(("emptyDir", "ephemeral", "hostPath"))  # for all pods with the same volume


class Filled(NamedTuple):
    """The volumes of a pod."""

    files: list[File]
    sources: Optional[Mapping[str, Source]]  # None: not looked at all, since the pod has a shape
    unusual: tuple[Any, ...] = ()  # what may be otherwise than in others of the shape
    token: str = ""  # the word for the token's volume


class _Recipe(NamedTuple):
    """How a ConfigMap or Secret becomes files: those of its keys that are named, or all."""

    name: str
    is_secret: bool
    folder: str
    mode: int
    items: tuple[tuple[str, str, int], ...]  # key, path in the job's directory, mode


def fill_volumes(pod: Pod, config: BuildConfig) -> Filled:
    """The volumes that containers mount, and all files that lie in them."""
    token = token_volume(pod)
    if token is None:
        found = sources(pod, config)
        return Filled([file for source in found.values() for file in source.files], found)
    files: list[File] = []
    unusual: list[Any] = []
    token_word = ""
    for index, recipe in once(pod, "volumes", config, lambda: _recipes(pod)):
        volume = pod.volumes[index]
        made = [] if recipe is None else _made(recipe, pod)
        if not made:
            source = source_of(pod, volume, config)
            made = [*source.files]
            word: str = source.word
            if volume.name == token:
                token_word, word = word, GAP
            unusual.append((index, word, *source[1:-1]))
        files += made
    return Filled(files, None, tuple(unusual), token_word)


def _recipes(pod: Pod) -> list[tuple[int, Optional[_Recipe]]]:
    """Of each volume that is mounted and may hold files: its place in the pod, and the recipe."""
    used = {mount.volume for container in pod.containers for mount in container.mounts}
    named = token_volume(pod)
    return [
        (index, None if volume.name == named else _recipe(volume))
        for index, volume in enumerate(pod.volumes)
        if volume.name in used and volume.kind not in _ALIKE
    ]


def _recipe(volume: Volume) -> Optional[_Recipe]:
    """None when it takes more than a list of keys, or there is something to complain of."""
    name, kind, source = volume
    if kind not in ("configMap", "secret"):
        return None
    is_secret = kind == "secret"
    folder = folder_of(name, secret=is_secret)
    try:
        wanted = text_at(source, "secretName" if is_secret else "name", name)
        mode = mode_at(source, "defaultMode", name, 0o644)
        chosen = {
            item_path(item, name): (text_at(item, "key", name), mode_at(item, "mode", name, mode))
            for item in objects_at(source, "items", name)
        }
    except PodRejected:
        return None
    if any(other.startswith(f"{path}/") for path in chosen for other in chosen):
        return None
    items = [(key, f"{folder}/{path}", mode) for path, (key, mode) in chosen.items()]
    return _Recipe(wanted, is_secret, folder, mode, tuple(items))


def _made(recipe: _Recipe, pod: Pod) -> list[File]:
    """The files; none when not all that they take came with the pod."""
    name, is_secret, folder, mode, items = recipe
    content = (pod.secrets if is_secret else pod.config_maps).get(name)
    if content is None:
        return []
    data = content.data
    if not items:
        return [File(f"{folder}/{key}", data[key], mode, is_secret) for key in data]
    try:
        return [File(path, data[key], mode, is_secret) for key, path, mode in items]
    except KeyError:
        return []
