"""What a volume becomes: files to write, places to check, or one line that says why not."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from templates.common.errors import PodRejected
from templates.common.names import SUBDOMAIN_RULE
from templates.job.model import File
from templates.pod.model import MAIN, Container, Content, Mount, Pod, Volume
from templates.resolve.volumes import VolumeSource, resolve_volumes
from templates.site.build_config import BuildConfig, Claim, HostPath, NfsExport, Volumes

CONFIG = BuildConfig(
    volumes=Volumes(
        host_paths=(
            HostPath("/data"),
            HostPath("/data/public", read_only=True),
            HostPath("/data/public/drop"),
            HostPath("/cvmfs", read_only=True),
        ),
        claims={
            "shared": Claim("/shared"),
            "team-a/shared": Claim("/teams/$namespace/$claim", read_only=True),
            "own": Claim("/own/${namespace}/$pod/$uid"),
            "team-b/home": Claim("/teams/b/home"),
        },
        nfs=(
            NfsExport("nfs.example.org", "/", "/net/all"),
            NfsExport("nfs.example.org", "/projects", "/net/projects", read_only=True),
        ),
    )
)


def pod_with(kind: str, source: dict[str, Any], **more: Any) -> Pod:
    container = Container("main", MAIN, "image", mounts=(Mount("v", "/v"),))
    volumes = (Volume("v", kind, source), Volume("unused", "gitRepo", {}))
    maps = {"app": Content({"a": b"A", "b": b"B"}), "bare": Content({})}
    pod = Pod("train-0", "team-a", "1-2-3", {"app": "x"}, {}, (container,), volumes)
    return pod._replace(**{"config_maps": maps, "secrets": {"s": Content({"pw": b"\xff"})}, **more})


def source_of(kind: str, source: dict[str, Any], **more: Any) -> VolumeSource:
    found = resolve_volumes(pod_with(kind, source, **more), CONFIG)
    assert list(found) == ["v"]  # what nobody mounts is not looked at
    return found["v"]


def refusal(kind: str, source: dict[str, Any], config: BuildConfig = CONFIG) -> str:
    with pytest.raises(PodRejected) as caught:
        resolve_volumes(pod_with(kind, source), config)
    return str(caught.value)


def files_of(source: VolumeSource) -> list[tuple[str, bytes, int, bool]]:
    return [tuple(file) for file in source.files]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({}, VolumeSource('"$SCRATCH"/v', empty_dir=True)),  # type: ignore[arg-type]
        ({"medium": ""}, VolumeSource('"$SCRATCH"/v', empty_dir=True)),  # type: ignore[arg-type]
        (
            {"medium": "Memory", "sizeLimit": "1Mi"},
            VolumeSource('"$MEMORY"/v', empty_dir=True, in_memory=True, size_limit=2**20),  # type: ignore[arg-type]
        ),
        ({"sizeLimit": 100}, VolumeSource('"$SCRATCH"/v', empty_dir=True, size_limit=100)),  # type: ignore[arg-type]
    ],
)
def test_an_empty_dir_is_made_by_the_script(source: dict[str, Any], found: VolumeSource) -> None:
    assert source_of("emptyDir", source) == found


def claim_template(**spec: Any) -> dict[str, Any]:
    return {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ({}, 0),
        (claim_template(), 0),
        (claim_template(resources={"requests": {"storage": "1Gi"}}, storageClassName="x"), 2**30),
    ],
)
def test_an_ephemeral_volume_is_an_empty_dir(source: dict[str, Any], limit: int) -> None:
    word = source_of("emptyDir", {}).word
    assert source_of("ephemeral", source) == VolumeSource(word, empty_dir=True, size_limit=limit)


@pytest.mark.parametrize("key", ["dataSource", "dataSourceRef"])
def test_an_ephemeral_volume_that_begins_with_content_is_refused(key: str) -> None:
    source = claim_template(**{key: {"kind": "VolumeSnapshot", "name": "s"}})
    assert refusal("ephemeral", source) == (
        f"pod.spec.volumes[v].ephemeral.volumeClaimTemplate.spec.{key}: "
        "not supported: the volume is empty at first"
    )


def test_a_config_map_becomes_files_in_the_jobs_directory() -> None:
    found = source_of("configMap", {"name": "app"})
    assert found.word == '"$DIR"/volumes/v'
    assert found.read_only
    assert found.files == (
        File("volumes/v/a", b"A", 0o644, False),
        File("volumes/v/b", b"B", 0o644, False),
    )


def test_a_secret_becomes_secret_files() -> None:
    found = source_of("secret", {"secretName": "s", "defaultMode": 0o400})
    assert found.word == '"$DIR"/secret/volumes/v'
    assert found.files == (File("secret/volumes/v/pw", b"\xff", 0o400, True),)


def test_items_choose_and_name_keys() -> None:
    items = [
        {"key": "a", "path": "./x//y"},
        {"key": "b", "path": "z", "mode": 0},
        {"key": "a", "path": "..hidden"},
    ]
    found = source_of("configMap", {"name": "app", "items": items, "defaultMode": 0o777})
    assert files_of(found) == [
        ("volumes/v/x/y", b"A", 0o777, False),
        ("volumes/v/z", b"B", 0, False),
        ("volumes/v/..hidden", b"A", 0o777, False),
    ]


def test_of_two_items_for_one_path_the_last_one_counts() -> None:
    items = [{"key": "a", "path": "x"}, {"key": "b", "path": "./x"}]
    found = source_of("configMap", {"name": "app", "items": items})
    assert files_of(found) == [("volumes/v/x", b"B", 0o644, False)]


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("configMap", {"name": "bare"}),
        ("configMap", {"name": "none", "optional": True}),
        ("configMap", {"name": "app", "optional": True, "items": [{"key": "c", "path": "c"}]}),
        ("secret", {"secretName": "none", "optional": True}),
        ("projected", {}),
        ("projected", {"sources": [{"serviceAccountToken": {"path": "token"}}]}),
        ("downwardAPI", {}),
    ],
)
def test_a_volume_without_files_is_an_empty_folder(kind: str, source: dict[str, Any]) -> None:
    assert source_of(kind, source) == VolumeSource('"$SCRATCH"/v', read_only=True, empty_dir=True)  # type: ignore[arg-type]


def test_a_projected_volume_takes_what_interlink_has_resolved_and_adds_the_rest() -> None:
    given = {"token": b"eyJ", "ca.crt": b"---", "labels": b"theirs"}
    parts = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"configMap": {"name": "app", "items": [{"key": "a", "path": "a", "mode": 0o600}]}},
        {"secret": {"name": "s"}},
        {
            "downwardAPI": {
                "items": [
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                ]
            }
        },
    ]
    found = source_of("projected", {"sources": parts, "defaultMode": 0o440}, projected={"v": given})
    assert {path: (content, mode) for path, content, mode, _ in files_of(found)} == {
        "secret/volumes/v/token": (b"eyJ", 0o440),
        "secret/volumes/v/ca.crt": (b"---", 0o440),
        "secret/volumes/v/labels": (b'app="x"', 0o440),  # theirs would end in a newline
        "secret/volumes/v/a": (b"A", 0o600),
        "secret/volumes/v/pw": (b"\xff", 0o440),
        "secret/volumes/v/name": (b"train-0", 0o440),
    }
    assert all(file.secret for file in found.files)


def test_the_downward_api_is_computed_where_it_can_be_and_else_taken_from_interlink() -> None:
    items = [
        {"path": "a/name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 0o400},
        {"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}},
        {"path": "new", "fieldRef": {"fieldPath": "spec.somethingNew"}},
    ]
    given = {"ns": b"theirs", "new": b"given"}
    found = source_of("downwardAPI", {"items": items}, projected={"v": given})
    assert files_of(found) == [
        ("volumes/v/a/name", b"train-0", 0o400, False),
        ("volumes/v/ns", b"team-a", 0o644, False),
        ("volumes/v/new", b"given", 0o644, False),
    ]


@pytest.mark.parametrize(
    ("path", "read_only", "entry"),
    [
        ("/data", False, "/data"),
        ("/data/", False, "/data"),
        ("/data/x//y/.", False, "/data"),
        ("/data/public", True, "/data/public"),
        ("/data/publicity", False, "/data"),
        ("/data/public/drop/x", False, "/data/public/drop"),
        ("/cvmfs/a", True, "/cvmfs"),
    ],
)
def test_the_nearest_entry_of_the_site_decides_about_a_host_path(
    path: str, read_only: bool, entry: str
) -> None:
    found = source_of("hostPath", {"path": path, "type": "Directory"})
    assert found.read_only is read_only
    assert found.check == f"host_path {found.word} Directory {entry}"
    assert not found.word.endswith("/")


@pytest.mark.parametrize(
    ("source", "place", "export", "read_only"),
    [
        ({"path": "/projects"}, "/net/projects", "/net/projects", True),
        ({"path": "/projects/a/"}, "/net/projects/a", "/net/projects", True),
        ({"path": "/projects2"}, "/net/all/projects2", "/net/all", False),
        ({"path": "/", "readOnly": True}, "/net/all", "/net/all", True),
        ({"path": "/it's"}, "'/net/all/it'\"'\"'s'", "/net/all", False),
    ],
)
def test_an_nfs_volume_is_where_the_nodes_have_it(
    source: dict[str, Any], place: str, export: str, read_only: bool
) -> None:
    found = source_of("nfs", {"server": "nfs.example.org", **source})
    assert (found.word, found.read_only) == (place, read_only)
    assert found.check == f"host_path {place} Directory {export}"


def test_a_hostile_host_path_is_one_word() -> None:
    found = source_of("hostPath", {"path": "/data/$(id) 'x' \n;"})
    assert found.word == "'/data/$(id) '\"'\"'x'\"'\"' \n;'"
    assert found.check == f"host_path {found.word} '' /data"


@pytest.mark.parametrize(
    ("namespace", "name", "word", "read_only"),
    [
        ("team-a", "shared", "/teams/team-a/shared", True),
        ("team-b", "shared", "/shared", False),
        ("team-b", "own", "/own/team-b/train-0/1-2-3", False),
    ],
)
def test_a_claim_is_looked_up_with_its_namespace_first(
    namespace: str, name: str, word: str, read_only: bool
) -> None:
    found = source_of("persistentVolumeClaim", {"claimName": name}, namespace=namespace)
    assert (found.word, found.read_only) == (word, read_only)
    read = source_of(
        "persistentVolumeClaim", {"claimName": name, "readOnly": True}, namespace=namespace
    )
    assert read.read_only


def item(key: Optional[str] = "a", path: Any = "a", **more: Any) -> dict[str, Any]:
    return {"name": "app", "items": [{"key": key, "path": path, **more}]}


RELATIVE = "must be a relative path of a file, without '..' and not too long"
REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("csi", {}, ": volumes of type csi are not supported"),
    ("emptyDir", {"medium": "HugePages"}, ".emptyDir.medium: not supported: HugePages"),
    ("emptyDir", {"sizeLimit": "much"}, ".emptyDir.sizeLimit: not a quantity: much"),
    ("configMap", {"name": "none"}, ".configMap: ConfigMap none did not come with the pod"),
    ("configMap", {}, ".configMap: ConfigMap (no name) did not come with the pod"),
    ("secret", {"secretName": "none"}, ".secret: Secret none did not come with the pod"),
    ("configMap", item("c"), ".configMap.items[0].key: ConfigMap app has no key c"),
    ("configMap", item(path="/a"), f".configMap.items[0].path: {RELATIVE}"),
    ("configMap", item(path=""), f".configMap.items[0].path: {RELATIVE}"),
    ("configMap", item(path="./"), f".configMap.items[0].path: {RELATIVE}"),
    ("configMap", item(path="a/../../b"), f".configMap.items[0].path: {RELATIVE}"),
    ("configMap", item(path="a\0b"), f".configMap.items[0].path: {RELATIVE}"),
    ("configMap", item(path="a/" + "é" * 128), f".configMap.items[0].path: {RELATIVE}"),
    ("configMap", item(path="a/" * 2048 + "b"), f".configMap.items[0].path: {RELATIVE}"),
    ("configMap", item(mode=0o1000), ".configMap.items[0].mode: must be between 0 and 0777"),
    (
        "configMap",
        {"name": "app", "defaultMode": 512},
        ".configMap.defaultMode: must be between 0 and 0777",
    ),
    (
        "configMap",
        {"name": "app", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y/z"}]},
        ".configMap: 'x' cannot be both a file and a folder",
    ),
    (
        "projected",
        {"sources": [{"clusterTrustBundle": {"path": "x"}}]},
        ".projected.sources[0].clusterTrustBundle: "
        "this source of a projected volume is not supported",
    ),
    (
        "projected",
        {"sources": [{}, {"secret": {"name": "none"}}]},
        ".projected.sources[0].: this source of a projected volume is not supported",
    ),
    (
        "projected",
        {"sources": [{"secret": {"name": "none"}}]},
        ".projected.sources[0].secret: Secret none did not come with the pod",
    ),
    ("hostPath", {"path": "data"}, ".hostPath.path: must be an absolute path without '..'"),
    ("hostPath", {}, ".hostPath.path: must be an absolute path without '..'"),
    ("hostPath", {"path": "/data/../etc"}, ".hostPath.path: must be an absolute path without '..'"),
    ("hostPath", {"path": "/data/\0"}, ".hostPath.path: must be an absolute path without '..'"),
    (
        "hostPath",
        {"path": "/data", "type": "Folder"},
        ".hostPath.type: not a type of hostPath: Folder",
    ),
    (
        "hostPath",
        {"path": "/database"},
        ".hostPath.path: /database is not allowed at this site "
        "(allowed: /data, /data/public, /data/public/drop, /cvmfs)",
    ),
    (
        "persistentVolumeClaim",
        {"claimName": "none"},
        ".persistentVolumeClaim: this site has no place for the claim team-a/none (volumes.claims)",
    ),
    (
        "nfs",
        {"server": "other.example.org", "path": "/projects"},
        ".nfs: this site has no place for other.example.org:/projects (volumes.nfs)",
    ),
    (
        "nfs",
        {"server": "nfs.example.org", "path": "/projects/../x"},
        ".nfs.path: must be an absolute path without '..'",
    ),
    *(
        ("persistentVolumeClaim", {"claimName": name}, f".persistentVolumeClaim.claimName: {rule}")
        for rule in [SUBDOMAIN_RULE]
        for name in ("team-b/home", "../home", "")
    ),
]


@pytest.mark.parametrize(("kind", "source", "words"), REFUSALS)
def test_what_a_site_cannot_give_is_refused_in_one_line(
    kind: str, source: dict[str, Any], words: str
) -> None:
    assert refusal(kind, source) == f"pod.spec.volumes[v]{words}"


def test_a_site_without_a_list_allows_no_host_path() -> None:
    assert refusal("hostPath", {"path": "/"}, BuildConfig()) == (
        "pod.spec.volumes[v].hostPath.path: / is not allowed at this site (allowed: none)"
    )
