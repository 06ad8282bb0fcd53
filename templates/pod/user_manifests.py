"""Plain manifests: one Pod or Job with the ConfigMaps and Secrets that it uses.

For the command line, where no API server has filled in defaults and no virtual kubelet has resolved
variables. Of a Job one pod is read, however many it would run. An object without a namespace is
taken to be in the pod's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Callable, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from templates.common.errors import PodRejected
from templates.common.names import SUBDOMAIN_RULE, is_subdomain
from templates.common.validation import (
    check_texts,
    number_at,
    object_at,
    objects_at,
    text_at,
    wrong_type,
)
from templates.common.yaml_loader import load_documents
from templates.pod.attachments import read_config_map, read_name, read_secret, read_text_data
from templates.pod.model import Content, Pod
from templates.pod.spec import PodInputs, read_pod
from templates.pod.variables import resolve_variables

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # those of Kubernetes: no word can come out
_SUFFIX_LENGTH = 5
_LONGEST_STEM = 63 - _SUFFIX_LENGTH


class _Document(NamedTuple):
    file: str
    kind: str
    body: dict[str, Any]


class _Template(NamedTuple):
    """A pod with what its containers refer to still unresolved."""

    field: str
    pod: dict[str, Any]


def read_manifests(texts: Sequence[tuple[str, str]]) -> Pod:
    """Read the pod of (file name, YAML or JSON) pairs; raise ``PodRejected`` and nothing else."""
    documents = [
        document
        for file, text in texts
        for body in load_documents(file, text)
        for document in _split_list(file, body)
    ]
    found = [document for document in documents if document.kind in ("Pod", "Job")]
    if len(found) != 1:
        raise PodRejected("manifests", f"must hold exactly one Pod or Job, not {len(found)}")
    content = json.dumps([document.body for document in documents], sort_keys=True)
    template = _read_template(found[0], content)
    namespace = template.pod["metadata"]["namespace"]
    config_maps = [d for d in documents if d.kind == "ConfigMap" and _is_in(d, namespace)]
    secrets = [d for d in documents if d.kind == "Secret" and _is_in(d, namespace)]
    inputs = PodInputs(
        resolve_variables,
        config_maps=_read_each(config_maps, read_config_map),
        secrets=_read_each(secrets, read_secret),
        readable_config_maps=_read_each(config_maps, read_text_data),
    )
    return read_pod(template.pod, template.field, inputs)


def _split_list(file: str, body: object) -> Iterator[_Document]:
    """Yield the objects of one document: itself, or the items of a ``kind: List``."""
    if type(body) is not dict:
        raise wrong_type(file, "a Kubernetes object", body)
    kind = text_at(body, "kind", file)
    if kind != "List":
        yield _Document(file, kind, body)
        return
    for item in objects_at(body, "items", file):
        yield from _split_list(file, item)


def _is_in(document: _Document, namespace: str) -> bool:
    metadata = object_at(document.body, "metadata", document.file)
    own = text_at(metadata, "namespace", f"{document.file}: {document.kind}.metadata")
    return not own or own == namespace


_Read = Callable[[Mapping[str, Any], str], Content]


def _read_each(documents: Sequence[_Document], read: _Read) -> dict[str, Content]:
    """Read objects by name; of two with the same name the later one counts, as with apply."""
    found: dict[str, Content] = {}
    for document in documents:
        name = read_name(document.body, f"{document.file}: {document.kind}")
        found[name] = read(document.body, f"{document.file}: {document.kind} {name}")
    return found


def _read_template(document: _Document, content: str) -> _Template:
    """Return the pod with the metadata that the API server would give it."""
    field = document.kind.lower()
    body = document.body
    check_texts(field, body)
    metadata = object_at(body, "metadata", field)
    namespace = text_at(metadata, "namespace", f"{field}.metadata") or "default"
    uid = str(uuid5(NAMESPACE_URL, content))
    name = _read_own_name(metadata, f"{field}.metadata", content)
    if document.kind == "Pod":
        uid = uid if metadata.get("uid") is None else metadata["uid"]
        spec = object_at(body, "spec", field)
    else:
        field = "job.spec.template"
        name = _derive_name(f"{name}-", content)
        metadata, spec = _read_job_template(body)
    own = {"name": name, "namespace": namespace, "uid": uid}
    return _Template(field, {"metadata": {**metadata, **own}, "spec": spec})


def _read_own_name(metadata: Mapping[str, Any], field: str, content: str) -> str:
    name = text_at(metadata, "name", field)
    if not name and metadata.get("generateName") is not None:
        name = _derive_name(text_at(metadata, "generateName", field), content)
    if not is_subdomain(name):
        raise PodRejected(f"{field}.name", SUBDOMAIN_RULE)
    return name


def _read_job_template(job: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return metadata and spec of a Job's pod; the shorter of both deadlines counts."""
    outer = object_at(job, "spec", "job")
    template = object_at(outer, "template", "job.spec")
    field = "job.spec.template"
    spec = object_at(template, "spec", field)
    if spec.get("restartPolicy") not in ("Never", "OnFailure"):
        raise PodRejected(f"{field}.spec.restartPolicy", "must be Never or OnFailure in a Job")
    deadlines = [
        deadline
        for deadline in (
            number_at(outer, "activeDeadlineSeconds", "job.spec"),
            number_at(spec, "activeDeadlineSeconds", f"{field}.spec"),
        )
        if deadline is not None
    ]
    if deadlines:
        spec = {**spec, "activeDeadlineSeconds": min(deadlines)}
    return object_at(template, "metadata", field), spec


def _derive_name(stem: str, content: str) -> str:
    """Return the stem with a suffix like Kubernetes' that depends on the content alone."""
    digest = sha256(content.encode("utf-8", "surrogatepass")).digest()
    letters = [_SUFFIX_LETTERS[byte % len(_SUFFIX_LETTERS)] for byte in digest[:_SUFFIX_LENGTH]]
    return stem[:_LONGEST_STEM] + "".join(letters)
