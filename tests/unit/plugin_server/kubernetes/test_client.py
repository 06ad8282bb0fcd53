"""What the plugin asks of Kubernetes: a whole answer, or an error."""

from __future__ import annotations

import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugin_server.kubernetes.client import PodApi, PodApiError
from tests.unit.plugin_server.kube_api import TOKEN, KubeApi

LIST = "/api/v1/pods"
NAMESPACE = "/api/v1/namespaces/kube-system"
ITEM = {"metadata": {"uid": "u"}}
EMPTY = {"kind": "PodList", "items": [], "metadata": {"resourceVersion": "1"}}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[KubeApi]:
    with KubeApi(tmp_path / "api") as found:
        yield found


def cluster_of(api: KubeApi, **changes: str) -> PodApi:
    access = {"url": api.url, "token_file": str(api.token_file), "ca_file": str(api.ca_file)}
    return PodApi(**{**access, **changes})


def test_which_cluster_it_is(api: KubeApi) -> None:
    assert cluster_of(api).read_cluster_uid() == api.cluster


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_all_pods_page_by_page(api: KubeApi, count: int) -> None:
    api.pods = [str(uuid.uuid4()) for _ in range(count)]
    assert cluster_of(api).list_pod_uids() == set(api.pods)


def test_a_url_with_a_path(api: KubeApi) -> None:
    api.answers["/clusters/c-1" + NAMESPACE] = (200, {"metadata": {"uid": "u1"}})
    assert cluster_of(api, url=f"{api.url}/clusters/c-1/").read_cluster_uid() == "u1"


def test_a_new_token_counts_at_once(api: KubeApi) -> None:
    cluster = cluster_of(api)
    cluster.read_cluster_uid()
    api.token_file.write_text("another")
    assert cluster.read_cluster_uid() == api.cluster


def test_a_list_that_breaks_off_is_none(api: KubeApi) -> None:
    """As the real one does when the list has become too old: 410 for the second page."""
    api.pods = [str(uuid.uuid4()) for _ in range(3)]
    first = api.answer

    def expired(path: str, headers: Any) -> tuple[int, Any]:
        if "continue" in path:
            return 410, {"message": "The provided continue parameter is too old"}
        return first(path, headers)

    api.answer = expired  # type: ignore[method-assign]
    with pytest.raises(PodApiError, match="says 410: The provided continue parameter is too old"):
        cluster_of(api).list_pod_uids()


@pytest.mark.parametrize(
    ("status", "content", "words"),
    [
        (403, {"message": "pods is forbidden"}, "the API server says 403: pods is forbidden"),
        (500, b"oh", "the API server says 500: oh"),
        (502, b"", "the API server says 502$"),
        (200, b"oh", "is no JSON object"),
        (200, b"[" * 100_000, "is no JSON object"),
        (200, [], "is no JSON object"),
        (200, {}, "list of pods is not one"),
        (200, {**EMPTY, "kind": "Status"}, "list of pods is not one"),
        (200, {**EMPTY, "items": {}}, "list of pods is not one"),
        (200, {**EMPTY, "metadata": {}}, "list of pods is not one"),
        (200, {key: EMPTY[key] for key in ("kind", "metadata")}, "list of pods is not one"),
        (200, {**EMPTY, "items": [{}]}, "has no uid"),
        (200, {**EMPTY, "items": ["x"]}, "has no uid"),
    ],
)
def test_what_is_no_list_of_pods(api: KubeApi, status: int, content: Any, words: str) -> None:
    api.answers[LIST] = (status, content)
    with pytest.raises(PodApiError, match=words) as caught:
        cluster_of(api).list_pod_uids()
    assert "\n" not in str(caught.value)


def test_a_list_without_end(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("templates.kube_api.client.PAGES", 3)
    more = {"resourceVersion": "1", "continue": "x"}
    page = {**EMPTY, "items": [ITEM], "metadata": more}
    api.answers[LIST] = (200, page)
    with pytest.raises(PodApiError, match="does not end within 3 pages"):
        cluster_of(api).list_pod_uids()


def test_a_namespace_without_a_uid(api: KubeApi) -> None:
    api.answers[NAMESPACE] = (200, {"metadata": {"uid": ""}})
    with pytest.raises(PodApiError, match="kube-system has no uid"):
        cluster_of(api).read_cluster_uid()


def test_it_is_asked_only_behind_a_certificate_that_is_good(api: KubeApi) -> None:
    for changes in ({"ca_file": ""}, {"url": api.url.replace("127.0.0.1", "localhost")}):
        with pytest.raises(PodApiError, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify"):
            cluster_of(api, **changes).read_cluster_uid()
    assert api.paths == []


def test_files_that_are_not_there_are_named(api: KubeApi) -> None:
    for key in ("token_file", "ca_file"):
        with pytest.raises(PodApiError) as caught:
            cluster_of(api, **{key: "/does/not/exist"}).read_cluster_uid()
        assert "No such file" in str(caught.value)
    for token in ("two\nlines", "", "zwölf"):
        api.token_file.write_text(token)
        with pytest.raises(PodApiError, match="token: must hold one word") as caught:
            cluster_of(api).read_cluster_uid()
        assert "two" not in str(caught.value)


def test_nobody_there_and_nobody_who_answers(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugin_server.kubernetes.client.TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(PodApiError, match="timed out") as caught:
            cluster_of(api, url=f"https://localhost:{port}").read_cluster_uid()
        assert TOKEN not in str(caught.value)
    with pytest.raises(PodApiError, match="refused"):
        cluster_of(api, url=f"https://localhost:{port}").read_cluster_uid()


def test_the_plugin_does_without_the_package_kubernetes() -> None:
    program = "import sys, plugin_server.service.service; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert "templates.kube_api.client" in loaded
    assert "kubernetes" not in loaded
