"""A pod's volumes at a site: files to write, directories to make, paths to check.

Every volume becomes one source directory (or file) that the job script mounts into containers. What
a site cannot give is refused here, before anything is submitted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from string import Template
from typing import Any, Callable, NamedTuple, Optional

from templates.common import quantity
from templates.common.errors import PodRejected
from templates.common.names import SUBDOMAIN_RULE, has_long_name, is_subdomain
from templates.common.quoting import Word, inside, quote
from templates.common.validation import flag_at, number_at, object_at, objects_at, text_at
from templates.job.model import File
from templates.pod.environment import reference_value
from templates.pod.model import Content, Pod, Volume
from templates.site.build_config import BuildConfig, Claim

_HOST_PATH_TYPES = (
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
)


_LONGEST_PATH = 2048  # leaves room for the job's own directory

_Entry = tuple[str, bytes, int]  # path in the volume, content, mode


class Source(NamedTuple):
    """Where a volume's content is at the site, as the job script says it."""

    word: Word  # a bash word: "$DIR/volumes/cfg"
    read_only: bool = False
    check: str = ""  # a bash command that leaves what is wrong in $problem
    empty_dir: bool = False
    in_memory: bool = False
    size_limit: int = 0  # bytes; of an emptyDir, 0 means none
    files: tuple[File, ...] = ()


def sources(pod: Pod, config: BuildConfig) -> dict[str, Source]:
    """Every volume that some container mounts, by name."""
    used = {mount.volume for container in pod.containers for mount in container.mounts}
    return {v.name: _source_of(pod, v, config) for v in pod.volumes if v.name in used}


def _source_of(pod: Pod, volume: Volume, config: BuildConfig) -> Source:
    name, kind, _ = volume
    make = _KINDS.get(kind)
    if make is None:
        where = f"pod.spec.volumes[{name}]"
        raise PodRejected(where, f"volumes of type {kind} are not supported")
    return make(pod, volume, config, f"pod.spec.volumes[{name}].{kind}")


def _empty_dir(pod: Pod, volume: Volume, config: BuildConfig, where: str) -> Source:
    if not volume.source:
        return Source(inside("$SCRATCH", volume.name), empty_dir=True)
    medium = text_at(volume.source, "medium", where)
    if medium not in ("", "Memory"):
        raise PodRejected(f"{where}.medium", f"not supported: {medium}")
    size = quantity.as_text(volume.source.get("sizeLimit"), f"{where}.sizeLimit")
    in_memory = medium == "Memory"
    return Source(
        inside("$MEMORY" if in_memory else "$SCRATCH", volume.name),
        empty_dir=True,
        in_memory=in_memory,
        size_limit=quantity.byte_count(size, f"{where}.sizeLimit") if size else 0,
    )


def _ephemeral(pod: Pod, volume: Volume, config: BuildConfig, where: str) -> Source:
    """A volume with the life of its pod: a directory, as large as its claim asks for."""
    where = f"{where}.volumeClaimTemplate.spec"
    claim = object_at(object_at(volume.source, "volumeClaimTemplate", where), "spec", where)
    for key in ("dataSource", "dataSourceRef"):
        if claim.get(key) is not None:
            raise PodRejected(f"{where}.{key}", "not supported: the volume is empty at first")
    requests = object_at(object_at(claim, "resources", where), "requests", where)
    size = quantity.as_text(requests.get("storage"), f"{where}.resources.requests.storage")
    return Source(
        inside("$SCRATCH", volume.name),
        empty_dir=True,
        size_limit=quantity.byte_count(size, f"{where}.resources.requests.storage") if size else 0,
    )


def _config_map(pod: Pod, volume: Volume, config: BuildConfig, where: str) -> Source:
    entries = _object_entries(volume.source, "name", pod.config_maps, "ConfigMap", where)
    return _written(volume.name, entries or (), where, secret=False)


def _secret(pod: Pod, volume: Volume, config: BuildConfig, where: str) -> Source:
    entries = _object_entries(volume.source, "secretName", pod.secrets, "Secret", where)
    return _written(volume.name, entries or (), where, secret=True)


def _downward(pod: Pod, volume: Volume, config: BuildConfig, where: str) -> Source:
    mode = _mode_at(volume.source, "defaultMode", where, 0o644)
    given = pod.projected.get(volume.name, {})
    entries = _downward_entries(pod, volume.source, given, mode, where)
    return _written(volume.name, entries, where, secret=False)


def _projected(pod: Pod, volume: Volume, config: BuildConfig, where: str) -> Source:
    """All sources together; what interLink has resolved (tokens) comes from it, the rest is ours.

    It always counts as secret: it may hold a token, and a stranger cannot tell.
    """
    mode = _mode_at(volume.source, "defaultMode", where, 0o644)
    received = pod.projected.get(volume.name, {})
    given = {_clean_path(path, where): content for path, content in received.items()}
    entries = [(path, content, mode) for path, content in given.items()]
    for index, part in enumerate(objects_at(volume.source, "sources", where)):
        entries += _projected_part(pod, part, given, mode, f"{where}.sources[{index}]")
    return _written(volume.name, entries, where, secret=True)


def _projected_part(
    pod: Pod, part: Mapping[str, Any], given: Mapping[str, bytes], mode: int, where: str
) -> Iterable[_Entry]:
    kind = next((key for key in part if part[key] is not None), "")
    source = object_at(part, kind, where) if kind else {}
    where = f"{where}.{kind}"
    if kind == "serviceAccountToken":
        # interLink's token is among what is given; without one there is no file.
        return ()
    if kind == "downwardAPI":
        return _downward_entries(pod, source, given, mode, where)
    known = {"configMap": (pod.config_maps, "ConfigMap"), "secret": (pod.secrets, "Secret")}
    if kind not in known:
        raise PodRejected(where, "this source of a projected volume is not supported")
    objects, title = known[kind]
    name = text_at(source, "name", where)
    if name not in objects and _given_entries(source, given, where):
        return ()
    return _object_entries(source, "name", objects, title, where, mode) or ()


def _given_entries(source: Mapping[str, Any], given: Mapping[str, bytes], where: str) -> bool:
    """Whether interLink has already put what a source asks into the volume."""
    items = objects_at(source, "items", where)
    if items:
        return all(_item_path(item, where) in given for item in items)
    return bool(given)


def _downward_entries(
    pod: Pod, source: Mapping[str, Any], given: Mapping[str, bytes], mode: int, where: str
) -> Iterator[_Entry]:
    for index, item in enumerate(objects_at(source, "items", where)):
        place = f"{where}.items[{index}]"
        path = _item_path(item, place)
        try:
            content = reference_value(pod, pod.containers, item, place).encode()
        except PodRejected:
            if path not in given:
                raise
            content = given[path]  # second to ours: interLink ends a list of labels with a newline
        yield path, content, _mode_at(item, "mode", place, mode)


def _object_entries(
    source: Mapping[str, Any],
    key: str,
    objects: Mapping[str, Content],
    title: str,
    where: str,
    default: Optional[int] = None,
) -> Optional[list[_Entry]]:
    """The entries of a ConfigMap or Secret as items chooses them; None: it may be missing."""
    name = text_at(source, key, where)
    optional = flag_at(source, "optional", where)
    mode = _mode_at(source, "defaultMode", where, 0o644) if default is None else default
    content = objects.get(name)
    if content is None:
        if optional:
            return None
        raise PodRejected(where, f"{title} {name or '(no name)'} did not come with the pod")
    items = objects_at(source, "items", where)
    if not items:
        return [(path, data, mode) for path, data in content.data.items()]
    chosen = []
    for index, item in enumerate(items):
        place = f"{where}.items[{index}]"
        wanted = text_at(item, "key", place)
        if wanted in content.data:
            path, item_mode = _item_path(item, place), _mode_at(item, "mode", place, mode)
            chosen.append((path, content.data[wanted], item_mode))
        elif not optional:
            raise PodRejected(f"{place}.key", f"{title} {name} has no key {wanted}")
    return chosen


def _item_path(item: Mapping[str, Any], where: str) -> str:
    return _clean_path(text_at(item, "path", where), f"{where}.path")


@lru_cache(maxsize=1024)
def _normal(path: str) -> str:
    """The path of a file below a folder, normalised; empty when it is none or leaves the folder."""
    parts = path.split("/")
    if not parts[0] or ".." in parts or "\0" in path:
        return ""
    clean = posixpath.normpath(path)
    return "" if clean == "." else clean


def _clean_path(path: str, where: str) -> str:
    clean = _normal(path) if len(path.encode()) <= _LONGEST_PATH else ""
    if not clean or has_long_name(clean):
        raise PodRejected(where, "must be a relative path of a file, without '..' and not too long")
    return clean


def _mode_at(holder: Mapping[str, Any], key: str, where: str, default: int) -> int:
    mode = holder.get(key)
    if mode is None:
        return default
    if type(mode) is int and 0 <= mode <= 0o777:
        return mode
    number_at(holder, key, where)  # has its own words for what is no such number at all
    raise PodRejected(f"{where}.{key}", "must be between 0 and 0777")


def _written(name: str, entries: Iterable[_Entry], where: str, *, secret: bool) -> Source:
    """The volume as files; of two with the same path the later one counts."""
    folder = f"secret/volumes/{name}" if secret else f"volumes/{name}"
    files = {
        path: File(f"{folder}/{path}", content, mode, secret) for path, content, mode in entries
    }
    if not files:
        return Source(inside("$SCRATCH", name), read_only=True, empty_dir=True)
    for path in files:
        if "/" in path:
            _check_folders(path, files, where)
    return Source(inside("$DIR", folder), True, files=tuple(files.values()))


def _check_folders(path: str, files: Mapping[str, File], where: str) -> None:
    folder = path.rpartition("/")[0]
    while folder:
        if folder in files:
            raise PodRejected(where, f"'{folder}' cannot be both a file and a folder")
        folder = folder.rpartition("/")[0]


def _host_path(pod: Pod, volume: Volume, config: BuildConfig, where: str) -> Source:
    path = _absolute(volume, where)
    kind = text_at(volume.source, "type", where)
    if kind not in _HOST_PATH_TYPES:
        raise PodRejected(f"{where}.type", f"not a type of hostPath: {kind}")
    allowed = [entry for entry in config.volumes.host_paths if _is_below(path, entry.path)]
    if not allowed:
        known = ", ".join(entry.path for entry in config.volumes.host_paths)
        raise PodRejected(
            f"{where}.path", f"{path} is not allowed at this site (allowed: {known or 'none'})"
        )
    nearest = max(allowed, key=lambda entry: len(entry.path))
    return Source(
        quote(path),
        read_only=nearest.read_only,
        check=f"host_path {quote(path)} {quote(kind)} {quote(nearest.path)}",
    )


def _nfs(pod: Pod, volume: Volume, config: BuildConfig, where: str) -> Source:
    """What the site's nodes have mounted of that server."""
    server, path = text_at(volume.source, "server", where), _absolute(volume, where)
    found = [e for e in config.volumes.nfs if e.server == server and _is_below(path, e.export)]
    if not found:
        raise PodRejected(where, f"this site has no place for {server}:{path} (volumes.nfs)")
    nearest = max(found, key=lambda export: len(export.export))
    place = posixpath.join(nearest.path, posixpath.relpath(path, nearest.export))
    place = posixpath.normpath(place)
    return Source(
        quote(place),
        read_only=nearest.read_only or bool(flag_at(volume.source, "readOnly", where)),
        check=f"host_path {quote(place)} Directory {quote(nearest.path)}",
    )


def _absolute(volume: Volume, where: str) -> str:
    path = text_at(volume.source, "path", where)
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise PodRejected(f"{where}.path", "must be an absolute path without '..'")
    return posixpath.normpath(path)


def _is_below(path: str, parent: str) -> bool:
    parent = posixpath.normpath(parent)
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def _claim(pod: Pod, volume: Volume, config: BuildConfig, where: str) -> Source:
    name = text_at(volume.source, "claimName", where)
    if not is_subdomain(name):  # a slash would reach what is another namespace's
        raise PodRejected(f"{where}.claimName", SUBDOMAIN_RULE)
    claims = config.volumes.claims
    claim: Optional[Claim] = claims.get(f"{pod.namespace}/{name}") or claims.get(name)
    if claim is None:
        raise PodRejected(
            where, f"this site has no place for the claim {pod.namespace}/{name} (volumes.claims)"
        )
    path = Template(claim.path).substitute(
        namespace=pod.namespace, claim=name, pod=pod.name, uid=pod.uid
    )
    read_only = claim.read_only or bool(flag_at(volume.source, "readOnly", where))
    return Source(quote(path), read_only=read_only)


_KINDS: dict[str, Callable[[Pod, Volume, BuildConfig, str], Source]] = {
    "emptyDir": _empty_dir,
    "ephemeral": _ephemeral,
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "projected": _projected,
    "hostPath": _host_path,
    "persistentVolumeClaim": _claim,
    "nfs": _nfs,
}
