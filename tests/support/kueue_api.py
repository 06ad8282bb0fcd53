"""Reading from a bed's API server on a connection that stays: each kubectl would be a process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import urllib3

Json = dict[str, Any]


class Refused(Exception):
    """The API server, or kubectl, did not do it; the text is what it said."""


class _Kind(NamedTuple):
    prefix: str  # of its group and version
    plural: str
    namespaced: bool


class Api:
    """An administrator's eyes; ``Refused`` when something cannot be told."""

    def __init__(self, server: str, keys: Path) -> None:
        self._server = server
        self._kinds: dict[str, _Kind] = {}
        self._pool = urllib3.PoolManager(
            ca_certs=str(keys / "ca.crt"),
            cert_file=str(keys / "admin.crt"),
            key_file=str(keys / "admin.key"),
            timeout=60,
        )

    def get(
        self, kind: str, name: str = "", namespace: str = "default", selector: str = ""
    ) -> Json:
        """One object, or a List of all; a kind is named as for kubectl."""
        found = self._kind(kind)
        place = f"/namespaces/{namespace}" if found.namespaced else ""
        query = {"labelSelector": selector} if selector else {}
        return self._json(f"{found.prefix}{place}/{found.plural}{name and '/'}{name}", query)

    def log(self, pod: str, container: str, namespace: str) -> str:
        """What a container has written."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        return self._ask(path, {"container": container}).decode()

    def _kind(self, name: str) -> _Kind:
        if name not in self._kinds:
            self._kinds = self._discover()  # it may be new
        if name not in self._kinds:
            raise Refused(f"the API server knows no {name}")
        return self._kinds[name]

    def _discover(self) -> dict[str, _Kind]:
        """All kinds, by each of their names; the first to have a name keeps it."""
        found: dict[str, _Kind] = {}
        for group, version, prefix in self._versions():
            for entry in self._json(prefix, {})["resources"]:
                kind = _Kind(prefix, entry["name"], entry["namespaced"])
                short = entry.get("shortNames", ())
                for name in (entry["name"], entry["singularName"], entry["kind"].lower(), *short):
                    for known in (name, f"{name}.{group}", f"{name}.{version}.{group}"):
                        found.setdefault(known, kind)
        return found

    def _versions(self) -> Iterator[tuple[str, str, str]]:
        """Each group with its versions, the preferred one first, and where they are."""
        yield "", "v1", "/api/v1"
        for group in self._json("/apis", {})["groups"]:
            preferred = group["preferredVersion"]["version"]
            versions = [entry["version"] for entry in group["versions"]]
            for version in sorted(versions, key=lambda one: one != preferred):
                yield group["name"], version, f"/apis/{group['name']}/{version}"

    def _json(self, path: str, query: dict[str, str]) -> Json:
        found: Json = json.loads(self._ask(path, query))
        return found

    def _ask(self, path: str, query: dict[str, str]) -> bytes:
        try:
            answer = self._pool.request("GET", f"{self._server}{path}", fields=query)
        except urllib3.exceptions.HTTPError as error:
            raise Refused(f"{path}: {error}") from None
        if answer.status != 200:
            raise Refused(f"{path}: {answer.status}: {answer.data.decode(errors='replace')}")
        return answer.data
