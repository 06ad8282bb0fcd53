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
from templates.common.quoting import Word, quote, quote_below
from templates.common.validation import flag_at, number_at, object_at, objects_at, text_at
from templates.job.model import File
from templates.pod.budget import Budget
from templates.pod.environment import reference_value
from templates.pod.model import Content, Pod, Volume
from templates.site.build_config import BuildConfig, Claim, HostPath

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


class VolumeSource(NamedTuple):
    """The place of a volume's content at the site, for the job script."""

    word: Word  # a bash word: "$DIR/volumes/cfg"
    read_only: bool = False
    check: str = ""  # a bash command that leaves an error in $problem
    pinned: bool = False  # others may write where it lies, and exchange it
    empty_dir: bool = False
    in_memory: bool = False
    size_limit: int = 0  # bytes; of an emptyDir, 0 means none
    files: tuple[File, ...] = ()


class _Scope(NamedTuple):
    """A pod at a site, and what is left of the budget for its volumes."""

    pod: Pod
    config: BuildConfig
    budget: Budget


def resolve_volumes(pod: Pod, config: BuildConfig) -> dict[str, VolumeSource]:
    """Return the source of every volume that some container mounts, by name."""
    used = {mount.volume for container in pod.containers for mount in container.mounts}
    scope = _Scope(pod, config, Budget())
    return {v.name: _resolve(scope, v) for v in pod.volumes if v.name in used}


def resolve_paths(paths: Iterable[str], config: BuildConfig) -> dict[str, VolumeSource]:
    """Return the source of each path that an annotation mounts: a hostPath, if the site has it."""
    found = {}
    for path in paths:
        nearest = _nearest_host_path(path, config)
        found[path] = _host_source(path, "", nearest) if nearest else VolumeSource(quote(path))
    return found


def _resolve(scope: _Scope, volume: Volume) -> VolumeSource:
    name, kind, _ = volume
    resolve = _KINDS.get(kind)
    if resolve is None:
        field = f"pod.spec.volumes[{name}]"
        raise PodRejected(field, f"volumes of type {kind} are not supported")
    return resolve(scope, volume, f"pod.spec.volumes[{name}].{kind}")


def _empty_dir(scope: _Scope, volume: Volume, field: str) -> VolumeSource:
    if not volume.source:
        return VolumeSource(quote_below("$SCRATCH", volume.name), empty_dir=True)
    medium = text_at(volume.source, "medium", field)
    if medium not in ("", "Memory"):
        raise PodRejected(f"{field}.medium", f"not supported: {medium}")
    size = quantity.as_text(volume.source.get("sizeLimit"), f"{field}.sizeLimit")
    in_memory = medium == "Memory"
    return VolumeSource(
        quote_below("$MEMORY" if in_memory else "$SCRATCH", volume.name),
        empty_dir=True,
        in_memory=in_memory,
        size_limit=quantity.byte_count(size, f"{field}.sizeLimit") if size else 0,
    )


def _ephemeral(scope: _Scope, volume: Volume, field: str) -> VolumeSource:
    """Resolve a volume with the life of its pod: a directory, as large as its claim requests."""
    field = f"{field}.volumeClaimTemplate.spec"
    claim = object_at(object_at(volume.source, "volumeClaimTemplate", field), "spec", field)
    for key in ("dataSource", "dataSourceRef"):
        if claim.get(key) is not None:
            raise PodRejected(f"{field}.{key}", "not supported: the volume is empty at first")
    requests = object_at(object_at(claim, "resources", field), "requests", field)
    size = quantity.as_text(requests.get("storage"), f"{field}.resources.requests.storage")
    return VolumeSource(
        quote_below("$SCRATCH", volume.name),
        empty_dir=True,
        size_limit=quantity.byte_count(size, f"{field}.resources.requests.storage") if size else 0,
    )


def _config_map(scope: _Scope, volume: Volume, field: str) -> VolumeSource:
    entries = _object_entries(scope, volume.source, "name", "ConfigMap", field)
    return _files_source(volume.name, entries or (), field, secret=False)


def _secret(scope: _Scope, volume: Volume, field: str) -> VolumeSource:
    entries = _object_entries(scope, volume.source, "secretName", "Secret", field)
    return _files_source(volume.name, entries or (), field, secret=True)


def _downward(scope: _Scope, volume: Volume, field: str) -> VolumeSource:
    mode = _read_mode(volume.source, "defaultMode", field, 0o644)
    provided = scope.pod.projected.get(volume.name, {})
    entries = _downward_entries(scope, volume.source, provided, mode, field)
    return _files_source(volume.name, entries, field, secret=False)


def _projected(scope: _Scope, volume: Volume, field: str) -> VolumeSource:
    """Merge all sources; interLink has resolved some (tokens), the rest is resolved here.

    It always counts as secret: it may hold a token, and nothing marks those.
    """
    mode = _read_mode(volume.source, "defaultMode", field, 0o644)
    received = scope.pod.projected.get(volume.name, {})
    scope.budget.take_files(received.values(), field)
    provided = {_clean_path(path, field): content for path, content in received.items()}
    entries = [(path, content, mode) for path, content in provided.items()]
    for index, part in enumerate(objects_at(volume.source, "sources", field)):
        entries += _projected_part(scope, part, provided, mode, f"{field}.sources[{index}]")
    return _files_source(volume.name, entries, field, secret=True)


def _projected_part(
    scope: _Scope, part: Mapping[str, Any], provided: Mapping[str, bytes], mode: int, field: str
) -> Iterable[_Entry]:
    kind = next((key for key in part if part[key] is not None), "")
    source = object_at(part, kind, field) if kind else {}
    field = f"{field}.{kind}"
    if kind == "serviceAccountToken":
        # interLink's token is among the entries provided; without one there is no file.
        return ()
    if kind == "downwardAPI":
        return _downward_entries(scope, source, provided, mode, field)
    title = {"configMap": "ConfigMap", "secret": "Secret"}.get(kind)
    if title is None:
        raise PodRejected(field, "this source of a projected volume is not supported")
    name = text_at(source, "name", field)
    if name not in _objects(scope.pod, title) and _are_provided(source, provided, field):
        return ()
    return _object_entries(scope, source, "name", title, field, mode) or ()


def _objects(pod: Pod, title: str) -> Mapping[str, Content]:
    return pod.secrets if title == "Secret" else pod.config_maps


def _are_provided(source: Mapping[str, Any], provided: Mapping[str, bytes], field: str) -> bool:
    """Return whether interLink has already put the entries of a source into the volume."""
    items = objects_at(source, "items", field)
    if items:
        return all(_item_path(item, field) in provided for item in items)
    return bool(provided)


def _downward_entries(
    scope: _Scope, source: Mapping[str, Any], provided: Mapping[str, bytes], mode: int, field: str
) -> Iterator[_Entry]:
    pod = scope.pod
    containers = {container.name: container for container in pod.containers}
    items = objects_at(source, "items", field)
    scope.budget.take("files", len(items), field)
    for index, item in enumerate(items):
        subfield = f"{field}.items[{index}]"
        path = _item_path(item, subfield)
        try:
            content = reference_value(pod, containers, item, subfield).encode()
        except PodRejected:
            if path not in provided:
                raise
            # Only as a fallback: interLink ends a list of labels with a newline.
            content = provided[path]
        scope.budget.take("references", len(content), subfield)
        yield path, content, _read_mode(item, "mode", subfield, mode)


def _object_entries(
    scope: _Scope,
    source: Mapping[str, Any],
    key: str,
    title: str,
    field: str,
    default: Optional[int] = None,
) -> Optional[list[_Entry]]:
    """Return the entries of a ConfigMap or Secret that items chooses; None if it may be missing."""
    name = text_at(source, key, field)
    optional = flag_at(source, "optional", field)
    mode = _read_mode(source, "defaultMode", field, 0o644) if default is None else default
    content = _objects(scope.pod, title).get(name)
    if content is None:
        if optional:
            return None
        raise PodRejected(field, f"{title} {name or '(no name)'} did not come with the pod")
    items = objects_at(source, "items", field)
    if not items:
        scope.budget.take_files(content.data.values(), field)
        return [(path, data, mode) for path, data in content.data.items()]
    chosen = []
    for index, item in enumerate(items):
        subfield = f"{field}.items[{index}]"
        wanted = text_at(item, "key", subfield)
        if wanted in content.data:
            path, item_mode = _item_path(item, subfield), _read_mode(item, "mode", subfield, mode)
            chosen.append((path, content.data[wanted], item_mode))
        elif not optional:
            raise PodRejected(f"{subfield}.key", f"{title} {name} has no key {wanted}")
    scope.budget.take_files([data for _, data, _ in chosen], field)
    return chosen


def _item_path(item: Mapping[str, Any], field: str) -> str:
    return _clean_path(text_at(item, "path", field), f"{field}.path")


@lru_cache(maxsize=1024)
def _normalise(path: str) -> str:
    """Normalise the path of a file below a folder; empty if it is none or leaves the folder."""
    parts = path.split("/")
    if not parts[0] or ".." in parts or "\0" in path:
        return ""
    clean = posixpath.normpath(path)
    return "" if clean == "." else clean


def _clean_path(path: str, field: str) -> str:
    clean = _normalise(path) if len(path.encode()) <= _LONGEST_PATH else ""
    if not clean or has_long_name(clean):
        raise PodRejected(field, "must be a relative path of a file, without '..' and not too long")
    return clean


def _read_mode(holder: Mapping[str, Any], key: str, field: str, default: int) -> int:
    mode = holder.get(key)
    if mode is None:
        return default
    if type(mode) is int and 0 <= mode <= 0o777:
        return mode
    number_at(holder, key, field)  # its message fits better if it is no number at all
    raise PodRejected(f"{field}.{key}", "must be between 0 and 0777")


def _files_source(
    name: str, entries: Iterable[_Entry], field: str, *, secret: bool
) -> VolumeSource:
    """Return the volume as files; of two with the same path the later one counts."""
    folder = f"secret/volumes/{name}" if secret else f"volumes/{name}"
    files = {
        path: File(f"{folder}/{path}", content, mode, secret) for path, content, mode in entries
    }
    if not files:
        return VolumeSource(quote_below("$SCRATCH", name), read_only=True, empty_dir=True)
    if len(files) > 1 and "/" in "".join(files):
        _check_folders(files, field)
    return VolumeSource(quote_below("$DIR", folder), True, files=tuple(files.values()))


def _check_folders(paths: Iterable[str], field: str) -> None:
    """Refuse a file that would have to be the folder of another one, too."""
    folders = sorted([f"{path}/" for path in paths])
    for folder, path in zip(folders, folders[1:]):
        if path.startswith(folder):
            raise PodRejected(field, f"'{folder[:-1]}' cannot be both a file and a folder")


def _host_path(scope: _Scope, volume: Volume, field: str) -> VolumeSource:
    path = _absolute(volume, field)
    kind = text_at(volume.source, "type", field)
    if kind not in _HOST_PATH_TYPES:
        raise PodRejected(f"{field}.type", f"not a type of hostPath: {kind}")
    config = scope.config
    nearest = _nearest_host_path(path, config)
    if nearest is None:
        known = ", ".join(entry.path for entry in config.volumes.host_paths)
        raise PodRejected(
            f"{field}.path", f"{path} is not allowed at this site (allowed: {known or 'none'})"
        )
    return _host_source(path, kind, nearest)


def _nearest_host_path(path: str, config: BuildConfig) -> Optional[HostPath]:
    allowed = [entry for entry in config.volumes.host_paths if _is_below(path, entry.path)]
    return max(allowed, key=lambda entry: len(entry.path), default=None)


def _host_source(path: str, kind: str, nearest: HostPath) -> VolumeSource:
    return VolumeSource(
        quote(path),
        read_only=nearest.read_only,
        check=f"host_path {quote(path)} {quote(kind)} {quote(nearest.path)}",
        pinned=path != nearest.path,
    )


def _nfs(scope: _Scope, volume: Volume, field: str) -> VolumeSource:
    """Resolve the path at which the site's nodes have mounted that export."""
    server, path = text_at(volume.source, "server", field), _absolute(volume, field)
    found = [
        e for e in scope.config.volumes.nfs if e.server == server and _is_below(path, e.export)
    ]
    if not found:
        raise PodRejected(field, f"this site has no place for {server}:{path} (volumes.nfs)")
    nearest = max(found, key=lambda export: len(export.export))
    local = posixpath.join(nearest.path, posixpath.relpath(path, nearest.export))
    local = posixpath.normpath(local)
    return VolumeSource(
        quote(local),
        read_only=nearest.read_only or bool(flag_at(volume.source, "readOnly", field)),
        check=f"host_path {quote(local)} Directory {quote(nearest.path)}",
        pinned=local != nearest.path,
    )


def _absolute(volume: Volume, field: str) -> str:
    path = text_at(volume.source, "path", field)
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise PodRejected(f"{field}.path", "must be an absolute path without '..'")
    if len(path) > _LONGEST_PATH:  # it stands in the script for each of its mounts
        raise PodRejected(f"{field}.path", f"must have at most {_LONGEST_PATH} characters")
    return posixpath.normpath(path)


def _is_below(path: str, parent: str) -> bool:
    parent = posixpath.normpath(parent)
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def _claim(scope: _Scope, volume: Volume, field: str) -> VolumeSource:
    name = text_at(volume.source, "claimName", field)
    if not is_subdomain(name):  # a slash would reach another namespace's claim
        raise PodRejected(f"{field}.claimName", SUBDOMAIN_RULE)
    pod, claims = scope.pod, scope.config.volumes.claims
    claim: Optional[Claim] = claims.get(f"{pod.namespace}/{name}") or claims.get(name)
    if claim is None:
        raise PodRejected(
            field, f"this site has no place for the claim {pod.namespace}/{name} (volumes.claims)"
        )
    path = Template(claim.path).substitute(
        namespace=pod.namespace, claim=name, pod=pod.name, uid=pod.uid
    )
    read_only = claim.read_only or bool(flag_at(volume.source, "readOnly", field))
    return VolumeSource(quote(path), read_only=read_only)


_KINDS: dict[str, Callable[[_Scope, Volume, str], VolumeSource]] = {
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
