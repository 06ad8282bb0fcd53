"""What Kubernetes itself knows: the uids of all pods, and which cluster it is.

Two calls, for which the plugin's account needs no more than to list pods and to get the namespace
kube-system. A list is whole or an error: one of which a page is missing is none.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.parse
from pathlib import Path
from typing import Any, NamedTuple

from templates.errors import InterlinkNatsError, one_line
from templates.json_text import load_json

TIMEOUT_S = 20.0
PAGE = 500
PAGES = 10_000
# Of a pod only its metadata; a server that does not know how sends the pods themselves.
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
LISTS = ("PartialObjectMetadataList", "PodList")


class ClusterError(InterlinkNatsError):
    """Kubernetes could not be asked, or did not answer as it should: nothing is known."""


class Access(NamedTuple):
    """Where the API server is, and who asks it."""

    url: str  # https://, perhaps with a path
    token_file: str
    ca_file: str  # empty: the system's own


class Cluster:
    """Asks, with a connection of its own for each question; the token is read anew each time."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._url = urllib.parse.urlsplit(access.url)

    def identity(self) -> str:
        """What no other cluster has: the uid of the namespace kube-system, as is the custom."""
        found = self._get("/api/v1/namespaces/kube-system", "application/json")
        return _uid(found, "the namespace kube-system")

    def pods(self) -> set[str]:
        """The uids of all pods there are, whatever has become of them."""
        uids: set[str] = set()
        query = {"limit": str(PAGE)}
        for _ in range(PAGES):
            page = self._get(f"/api/v1/pods?{urllib.parse.urlencode(query)}", PARTIAL)
            items, more = _items(page), page.get("metadata")
            if type(more) is not dict or not more.get("resourceVersion"):
                raise ClusterError("the API server's list of pods is not one")
            uids.update(_uid(item, "a pod in the API server's list") for item in items)
            if not more.get("continue"):
                return uids
            query["continue"] = str(more["continue"])
        raise ClusterError(f"the API server's list of pods does not end within {PAGES} pages")

    def _get(self, path: str, accept: str) -> dict[str, Any]:
        try:
            token = _token(self._access.token_file)
            tls = ssl.create_default_context(cafile=self._access.ca_file or None)
            # Since Python 3.13; the certificates of many clusters lack what it insists on.
            tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
            host, port = self._url.hostname or "", self._url.port
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=tls)
            try:
                headers = {"Accept": accept, "Authorization": f"Bearer {token}"}
                connection.request("GET", self._url.path.rstrip("/") + path, headers=headers)
                answer = connection.getresponse()
                status, content = answer.status, answer.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, InterlinkNatsError, ValueError) as error:
            raise ClusterError(f"{self._access.url}: {one_line(str(error))}") from None
        return _object(status, content)


def _token(path: str) -> str:
    token = Path(path).read_text(encoding="ascii", errors="replace").strip()
    if not token.isascii() or len(token.split()) != 1:
        raise ClusterError(f"{path}: must hold one word")  # an error of the client would repeat it
    return token


def _object(status: int, content: bytes) -> dict[str, Any]:
    try:
        found = load_json(content)
    except (ValueError, RecursionError):
        found = None
    if status != 200:
        words = found.get("message") if type(found) is dict else ""
        raise ClusterError(f"the API server says {status}: {one_line(str(words))}")
    if type(found) is not dict:
        raise ClusterError("the API server's answer is no JSON object")
    return found


def _items(page: dict[str, Any]) -> list[Any]:
    """What a list holds; the real one says null where a list of metadata is empty."""
    items = page.get("items", "missing")
    if page.get("kind") in LISTS and (items is None or type(items) is list):
        return items or []
    raise ClusterError("the API server's list of pods is not one")


def _uid(item: object, what: str) -> str:
    metadata = item.get("metadata") if type(item) is dict else None
    uid = metadata.get("uid") if type(metadata) is dict else None
    if type(uid) is not str or not uid:
        raise ClusterError(f"{what} has no uid")
    return uid
