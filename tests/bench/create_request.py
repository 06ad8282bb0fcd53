"""The create request that ``translate`` reads: a pod as interLink really sends one.

An init container and a main one, with a ConfigMap, a Secret, a projected token and an emptyDir, and
the zero values that interLink fills in: about 3 KB. The pods are those of one Job: images, mounts
and resources are alike. What differs from one to the next differs here, too: names, uids, labels,
annotations, values, arguments, contents, tokens, and the name of the token's volume.
"""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import NAMESPACE_URL, uuid5

API_SERVER = "10.96.0.1"


def body(number: int = 0) -> bytes:
    """The bytes of one request of many, in Go's compact form."""
    request = {"pod": pod(number), "container": contents(number), "jobConfig": job_config()}
    return json.dumps(request, separators=(",", ":")).encode()


def pod(number: int) -> dict[str, Any]:
    metadata = {
        "name": f"train-{number}",
        "namespace": "team-a",
        "uid": str(uuid5(NAMESPACE_URL, f"pod {number}")),
        "creationTimestamp": "2026-08-01T10:00:00Z",
        "labels": {"app": f"train-{number}", "batch.kubernetes.io/job-name": "train"},
        "annotations": {"slurm-job.vk.io/flags": f"--time={number + 10}"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train",
                "uid": "0b9c2c53-1d55-4c0e-8a53-3c7f6f0b1a77",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    status = {"phase": "Pending", "qosClass": "Burstable"}
    return {"metadata": metadata, "spec": spec(number), "status": status}


def spec(number: int) -> dict[str, Any]:
    items = [{"key": "a.yaml", "path": "conf/a.yaml"}]
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    return {
        "volumes": [
            {"name": "cfg", "configMap": {"name": "train-cfg", "items": items, "defaultMode": 420}},
            {"name": "pw", "secret": {"secretName": "train-pw", "defaultMode": 256}},
            {"name": token_volume(number), "projected": {"sources": [token], "defaultMode": 420}},
            {"name": "work", "emptyDir": {}},
        ],
        "initContainers": [prep(number)],
        "containers": [main(number)],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "nodeName": "vk-node",
        "serviceAccountName": "default",
        "tolerations": [
            {
                "key": "virtual-node.interlink/no-schedule",
                "operator": "Exists",
                "effect": "NoSchedule",
            },
            {"key": "pool.vk.io", "value": "slurm-a", "effect": "NoSchedule"},
        ],
    }


def token_volume(number: int) -> str:
    """The API server gives the token's volume of each pod a name of its own."""
    return f"kube-api-access-{number:05d}"


def prep(number: int) -> dict[str, Any]:
    return {
        "name": "prep",
        "image": "busybox:1.36",
        "command": ["sh", "-c"],
        "args": [f"echo {number} >/work/number"],
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
        "resources": {},
    }


def main(number: int) -> dict[str, Any]:
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    return {
        "name": "main",
        "image": "python:3.12",
        "command": ["python"],
        "args": ["-c", f"print({number}, open('/etc/app/conf/a.yaml').read())"],
        "env": [
            {"name": "LEVEL", "value": f"debug-{number}"},
            {"name": "KUBERNETES_SERVICE_HOST", "value": API_SERVER},
        ],
        "resources": {
            "limits": {"cpu": "2", "memory": "1Gi"},
            "requests": {"cpu": "1", "memory": "512Mi"},
        },
        "volumeMounts": [
            {"name": "cfg", "mountPath": "/etc/app", "readOnly": True},
            {"name": "work", "mountPath": "/work"},
            {"name": "pw", "mountPath": "/etc/pw", "readOnly": True},
            {"name": token_volume(number), "mountPath": account, "readOnly": True},
        ],
    }


def contents(number: int) -> list[dict[str, Any]]:
    """What comes with each container, once for each of its mounts."""
    config_map = {
        "metadata": {"name": "train-cfg", "namespace": "team-a"},
        "data": {"a.yaml": f"rate: 0.1\nseed: {number}\n", "b.yaml": "unused"},
        "binaryData": {"x.bin": "AAEC"},
    }
    secret = {
        "metadata": {"name": "train-pw", "namespace": "team-a"},
        "data": {"pw": base64.b64encode(b"correct horse %d" % number).decode()},
        "type": "Opaque",
    }
    token = {
        "metadata": {"name": token_volume(number), "creationTimestamp": None},
        "data": {"token": f"header.claims-{number}.signature"},
    }
    nothing = {"projectedvolumemaps": None, "secrets": None, "emptyDirs": None}
    return [
        {"name": "prep", "configMaps": None, **nothing},
        {
            "name": "main",
            "configMaps": [config_map],
            "projectedvolumemaps": [token],
            "secrets": [secret],
            "emptyDirs": None,
        },
    ]


def job_config() -> dict[str, Any]:
    """The zero values that interLink always sends along."""
    switches = ("fakeroot", "containall", "noInit", "noHome", "noPrivs", "nvidiaSupport")
    return {
        "SingularityHubProxy": {"server": "", "master_token": "", "cache_validity_seconds": 0},
        "ApptainerOptions": {
            "executable": "",
            "fuseMode": "",
            **dict.fromkeys(switches, False),
            "cleanenv": False,
            "unsquash": False,
        },
        "Volumes": {
            "scratch_area": "",
            "apptainer_cachedir": "",
            "image_dir": "",
            "additional_directories_in_path": None,
            "fuse_sleep_seconds": 0,
        },
    }
