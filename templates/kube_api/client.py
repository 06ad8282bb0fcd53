"""A small client of the Kubernetes API: credentials, deadlines, pages, streams, errors.

Bodies are JSON. The credentials come from an ``AccessSource``: a file with a token here, a
kubeconfig in ``kubeconfig.py``, which alone needs the package ``kubernetes``.
"""

from __future__ import annotations

import json
import re
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Protocol

import urllib3

from templates.common.errors import ConfigError, one_line
from templates.common.json_codec import load_json
from templates.kube_api.errors import message_of

JSON = "application/json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

PAGE = 500
PAGES = 10_000
BLOCK = 64 * 1024
OK, UNAUTHORIZED = 200, 401

# The start of urllib3's messages: the connection with its address in memory, which is of no use.
_CONNECTION = re.compile(r"^(?:<[^>]*>|\w+\([^)]*\)): ")

Json = dict[str, Any]


class ApiAccess(NamedTuple):
    """URL of an API server, with connections and credentials."""

    url: str  # perhaps with a path
    connections: urllib3.PoolManager
    headers: Mapping[str, str]


class AccessSource(Protocol):
    """Source of the URL and the credentials."""

    def access(self) -> ApiAccess:
        """Return the access for the next call; raise ``OSError`` or ``ConfigError``."""

    def renew(self) -> None:
        """Read the credentials anew, because they were refused."""


class Failure(NamedTuple):
    """Failed call."""

    what: str
    """The call, for people."""
    status: int
    """That of the answer; 0 when there was none."""
    reason: str
    """The API server's message, if there is one."""
    body: bytes = b""


class Call(NamedTuple):
    """One request."""

    method: str
    path: str
    what: str
    """For people: the start of an error."""
    body: Optional[Json] = None
    kind: str = JSON
    """Of the body."""
    accept: str = JSON


class TokenFile:
    """Access by a token in a file. Each call reads the files, and has a connection of its own."""

    def __init__(self, url: str, token_file: str, ca_file: str = "") -> None:
        self._url = url.rstrip("/")
        self._token_file = token_file
        self._ca_file = ca_file  # empty: the system's own

    def access(self) -> ApiAccess:
        """Read the files."""
        token = Path(self._token_file).read_text(encoding="ascii", errors="replace").strip()
        if not token.isascii() or len(token.split()) != 1:  # an error of the client would repeat it
            raise ConfigError(self._token_file, "must hold one word")
        tls = ssl.create_default_context(cafile=self._ca_file or None)
        # Since Python 3.13; the certificates of many clusters lack what it insists on.
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
        return ApiAccess(self._url, urllib3.PoolManager(ssl_context=tls), headers)

    def renew(self) -> None:
        """Do nothing: each call reads the files."""


class KubeClient:
    """Client of one API server, for any number of threads.

    Whatever fails is raised as the exception that ``error_of`` returns for it.
    """

    def __init__(
        self,
        source: AccessSource,
        error_of: Callable[[Failure], Exception],
        *,
        agent: str,
        connect_s: float,
        read_s: float,
    ) -> None:
        self._source = source
        self._error_of = error_of
        self._agent = agent
        self._connect_s = connect_s
        self._read_s = read_s

    def call(self, call: Call) -> Json:
        """Return the JSON object that is answered."""
        try:
            answer = self._request(call, self._read_s, stream=False)
        except _NO_ANSWER as error:
            raise self._error_of(Failure(call.what, 0, _reason(error))) from None
        if answer.status >= 300:
            raise self._refusal(call.what, answer.status, answer.data)
        return self._object(call.what, answer.data)

    def get(self, path: str, what: str, query: Optional[Mapping[str, str]] = None) -> Json:
        """Return an object."""
        return self.call(Call("GET", with_query(path, query or {}), what))

    def pages(
        self, path: str, what: str, query: Optional[Mapping[str, str]] = None, accept: str = JSON
    ) -> Iterator[Json]:
        """Yield the pages of a list; one that breaks off is an error."""
        parameters = {"limit": str(PAGE), **(query or {})}
        for _ in range(PAGES):
            page = self.call(Call("GET", with_query(path, parameters), what, accept=accept))
            yield page
            metadata = page.get("metadata")
            more = metadata.get("continue") if type(metadata) is dict else None
            if not more:
                return
            parameters["continue"] = str(more)
        reason = f"the API server's list does not end within {PAGES} pages"
        raise self._error_of(Failure(what, OK, reason))

    def items(self, path: str, what: str, query: Optional[Mapping[str, str]] = None) -> list[Json]:
        """Return all items of a list."""
        found: list[Json] = []
        for page in self.pages(path, what, query):
            items = page.get("items", "missing")
            if items is not None and type(items) is not list:  # null, where there are none
                raise self._error_of(Failure(what, OK, "the answer is no list"))
            found += items or ()
        return found

    def lines(
        self, path: str, what: str, query: Mapping[str, str], silence_s: Optional[float] = None
    ) -> Iterator[bytes]:
        """Yield the lines of a stream, each with its end, until it ends or nothing comes."""
        call = Call("GET", with_query(path, query), what)
        try:
            answer = self._request(call, silence_s or self._read_s, stream=True)
            try:
                if answer.status >= 300:
                    raise self._refusal(what, answer.status, answer.read())
                yield from _lines(answer.stream(BLOCK, decode_content=True))
            finally:
                answer.close()
        except _NO_ANSWER as error:
            raise self._error_of(Failure(what, 0, _reason(error))) from None

    def objects(
        self, path: str, what: str, query: Mapping[str, str], silence_s: Optional[float] = None
    ) -> Iterator[Json]:
        """Yield the objects of a stream with one in each line, as a watch is."""
        for line in self.lines(path, what, query, silence_s):
            yield self._object(what, line)

    def _request(self, call: Call, read_s: float, *, stream: bool) -> urllib3.BaseHTTPResponse:
        answer = self._send(call, read_s, stream=stream)
        if answer.status == UNAUTHORIZED:
            answer.close()
            self._source.renew()
            answer = self._send(call, read_s, stream=stream)
        return answer

    def _send(self, call: Call, read_s: float, *, stream: bool) -> urllib3.BaseHTTPResponse:
        access = self._source.access()
        headers = {"Accept": call.accept, "User-Agent": self._agent, **access.headers}
        body = None
        if call.body is not None:
            headers["Content-Type"] = call.kind
            body = json.dumps(call.body).encode()
        return access.connections.request(
            call.method,
            access.url + call.path,
            body=body,
            headers=headers,
            timeout=urllib3.Timeout(connect=self._connect_s, read=read_s),
            retries=False,
            preload_content=not stream,
        )

    def _refusal(self, what: str, status: int, body: bytes) -> Exception:
        return self._error_of(Failure(what, status, message_of(status, body), body))

    def _object(self, what: str, content: bytes) -> Json:
        try:
            found = load_json(content)
        except (ValueError, RecursionError):
            found = None
        if type(found) is not dict:
            raise self._error_of(Failure(what, OK, "the answer is no JSON object"))
        return found


_NO_ANSWER = (urllib3.exceptions.HTTPError, OSError, ConfigError)


def with_query(path: str, query: Mapping[str, str]) -> str:
    """Return the path with a query, if there is any."""
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


def _reason(error: Exception) -> str:
    return one_line(_CONNECTION.sub("", str(error))) or type(error).__name__


def _lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends; the last one may have none."""
    rest = b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest
