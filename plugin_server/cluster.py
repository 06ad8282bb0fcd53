"""What Kubernetes itself knows: the uids of pods, and which cluster it is; and the status of one.

A list is whole or an error: one of which a page is missing is none.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from pathlib import Path
from typing import Any, NamedTuple, Optional

from templates.api_refusals import with_status
from templates.errors import InterlinkNatsError, one_line
from templates.json_text import load_json

TIMEOUT_S = 20.0
PAGE = 500
PAGES = 10_000
# Of a pod only its metadata; a server that does not know how sends the pods themselves.
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
LISTS = ("PartialObjectMetadataList", "PodList")
UNENDED = "status.phase!=Succeeded,status.phase!=Failed"
ANSWERS_AGAIN = "Kubernetes answers again"
JSON, PATCH = "application/json", "application/strategic-merge-patch+json"


class ClusterError(InterlinkNatsError):
    """Kubernetes could not be asked, or did not answer as it should: nothing is known."""


class PodChanged(InterlinkNatsError):
    """A pod is not what it was when it was read."""


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
        found = _object(*self._ask("GET", "/api/v1/namespaces/kube-system"))
        return _uid(found, "the namespace kube-system")

    def pods(self) -> set[str]:
        """The uids of all pods there are, whatever has become of them."""
        return self._uids({})

    def unended_pods(self) -> set[str]:
        """The uids of those that have not ended, as far as Kubernetes knows."""
        return self._uids({"fieldSelector": UNENDED})

    def pod(self, namespace: str, name: str) -> Optional[dict[str, Any]]:
        """The whole of it; None when there is none."""
        status, content = self._ask("GET", _path(namespace, name))
        return None if status == 404 else _object(status, content)

    def write_status(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        """Change the status of a pod; raises ``PodChanged`` if it is not what was read."""
        metadata = pod["metadata"]
        precondition = {key: metadata[key] for key in ("uid", "resourceVersion")}
        body = json.dumps({"metadata": precondition, "status": status}).encode()
        path = f"{_path(metadata['namespace'], metadata['name'])}/status"
        code, content = self._ask("PATCH", path, body=body)
        if code in (404, 409):
            raise PodChanged(path)
        _object(code, content)

    def _uids(self, selected: dict[str, str]) -> set[str]:
        uids: set[str] = set()
        query = {"limit": str(PAGE), **selected}
        for _ in range(PAGES):
            path = f"/api/v1/pods?{urllib.parse.urlencode(query)}"
            page = _object(*self._ask("GET", path, accept=PARTIAL))
            items, more = _items(page), page.get("metadata")
            if type(more) is not dict or not more.get("resourceVersion"):
                raise ClusterError("the API server's list of pods is not one")
            uids.update(_uid(item, "a pod in the API server's list") for item in items)
            if not more.get("continue"):
                return uids
            query["continue"] = str(more["continue"])
        raise ClusterError(f"the API server's list of pods does not end within {PAGES} pages")

    def _ask(
        self, method: str, path: str, *, accept: str = JSON, body: Optional[bytes] = None
    ) -> tuple[int, bytes]:
        try:
            token = _token(self._access.token_file)
            tls = ssl.create_default_context(cafile=self._access.ca_file or None)
            # Since Python 3.13; the certificates of many clusters lack what it insists on.
            tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
            host, port = self._url.hostname or "", self._url.port
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=tls)
            try:
                headers = {"Accept": accept, "Authorization": f"Bearer {token}"}
                if body is not None:
                    headers["Content-Type"] = PATCH
                connection.request(method, self._url.path.rstrip("/") + path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, InterlinkNatsError, ValueError) as error:
            raise ClusterError(f"{self._access.url}: {one_line(str(error))}") from None


def _path(namespace: str, name: str) -> str:
    quoted = (urllib.parse.quote(word, safe="") for word in (namespace, name))
    return "/api/v1/namespaces/{}/pods/{}".format(*quoted)


def _token(path: str) -> str:
    token = Path(path).read_text(encoding="ascii", errors="replace").strip()
    if not token.isascii() or len(token.split()) != 1:
        raise ClusterError(f"{path}: must hold one word")  # an error of the client would repeat it
    return token


def _object(status: int, content: bytes) -> dict[str, Any]:
    if status != 200:
        raise ClusterError(one_line(with_status("the API server says", status, content)))
    try:
        found = load_json(content)
    except (ValueError, RecursionError):
        found = None
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
