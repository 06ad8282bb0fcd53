"""Reading from the bed's API server on a connection that stays: each kubectl would be a process."""

from __future__ import annotations

import json
from typing import Any

import urllib3

from tests.kueue_bed import KueueBed, Refused

Json = dict[str, Any]
PREFIXES = {
    "pods": "api/v1",
    "jobs": "apis/batch/v1",
    "workloads": "apis/kueue.x-k8s.io/v1beta1",
}


class Api:
    """What is in one namespace; ``Refused`` when it cannot be told."""

    def __init__(self, bed: KueueBed, namespace: str) -> None:
        keys = bed.kubeconfig.parent / "pki"
        self._host, self._namespace = bed.server, namespace
        self._pool = urllib3.PoolManager(
            ca_certs=str(keys / "ca.crt"),
            cert_file=str(keys / "admin.crt"),
            key_file=str(keys / "admin.key"),
            timeout=60,
        )

    def get(self, kind: str, name: str) -> Json:
        found: Json = json.loads(self._ask(kind, f"/{name}"))
        return found

    def every(self, kind: str, selector: str = "") -> list[Json]:
        found: list[Json] = json.loads(self._ask(kind, "", labelSelector=selector))["items"]
        return found

    def log(self, pod: str, container: str) -> str:
        return self._ask("pods", f"/{pod}/log", container=container).decode()

    def _ask(self, kind: str, rest: str, **query: str) -> bytes:
        url = f"{self._host}/{PREFIXES[kind]}/namespaces/{self._namespace}/{kind}{rest}"
        try:
            answer = self._pool.request("GET", url, fields=query)
        except urllib3.exceptions.HTTPError as error:
            raise Refused(f"{url}: {error}") from None
        if answer.status != 200:
            raise Refused(f"{url}: {answer.status}: {answer.data.decode(errors='replace')}")
        return answer.data
