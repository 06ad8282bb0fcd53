"""The create request that ``translate`` reads: a pod as interLink really sends one.

Two containers, one of them an init container, with a ConfigMap, a Secret and a projected token, the
variables that the virtual kubelet adds, and the zero values that interLink fills in: about 4 KB.
"""

from __future__ import annotations

import base64
import json
from typing import Any

UID = "6a1f0c1e-7f0b-4a38-9a36-2f4c9f6f0a11"
API_SERVER = "10.96.0.1"


def body() -> bytes:
    """The request's bytes, in Go's compact form."""
    request = {"pod": pod(), "container": contents(), "jobConfig": job_config()}
    return json.dumps(request, separators=(",", ":")).encode()


def pod() -> dict[str, Any]:
    metadata = {
        "name": "train-0",
        "namespace": "team-a",
        "uid": UID,
        "creationTimestamp": "2026-08-01T10:00:00Z",
        "labels": {"app": "train", "batch.kubernetes.io/job-name": "train"},
        "annotations": {"slurm-job.vk.io/flags": "--time=10"},
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
    return {"metadata": metadata, "spec": spec(), "status": {"phase": "Pending"}}


def spec() -> dict[str, Any]:
    items = [{"key": "a.yaml", "path": "conf/a.yaml"}]
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    return {
        "volumes": [
            {"name": "cfg", "configMap": {"name": "train-cfg", "items": items, "defaultMode": 420}},
            {"name": "pw", "secret": {"secretName": "train-pw", "defaultMode": 256}},
            {"name": "tok", "projected": {"sources": [token], "defaultMode": 420}},
            {"name": "work", "emptyDir": {}},
        ],
        "initContainers": [prep()],
        "containers": [main()],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "nodeSelector": {"kubernetes.io/hostname": "vk-node"},
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "nodeName": "vk-node",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {
                "key": "virtual-node.interlink/no-schedule",
                "operator": "Exists",
                "effect": "NoSchedule",
            },
            {"key": "pool.vk.io", "value": "slurm-a", "effect": "NoSchedule"},
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def prep() -> dict[str, Any]:
    return {
        "name": "prep",
        "image": "busybox:1.36",
        "command": ["sh", "-c"],
        "args": ["cp /etc/app/conf/a.yaml /data/"],
        "env": service_variables(),
        "resources": {},
        "volumeMounts": [
            {"name": "work", "mountPath": "/data"},
            {"name": "cfg", "mountPath": "/etc/app", "readOnly": True},
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def main() -> dict[str, Any]:
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    return {
        "name": "main",
        "image": "python:3.12",
        "command": ["python"],
        "args": ["-c", "print(open('/data/a.yaml').read())"],
        "env": [{"name": "LEVEL", "value": "debug"}, *service_variables()],
        "resources": {
            "limits": {"cpu": "2", "memory": "1Gi"},
            "requests": {"cpu": "1", "memory": "512Mi"},
        },
        "volumeMounts": [
            {"name": "cfg", "mountPath": "/etc/app", "readOnly": True},
            {"name": "pw", "mountPath": "/etc/pw", "readOnly": True},
            {"name": "work", "mountPath": "/data"},
            {"name": "tok", "mountPath": account, "readOnly": True},
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def service_variables() -> list[dict[str, str]]:
    values = {
        "KUBERNETES_SERVICE_HOST": API_SERVER,
        "KUBERNETES_SERVICE_PORT": "443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "443",
        "KUBERNETES_PORT": f"tcp://{API_SERVER}:443",
        "KUBERNETES_PORT_443_TCP": f"tcp://{API_SERVER}:443",
        "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
        "KUBERNETES_PORT_443_TCP_PORT": "443",
        "KUBERNETES_PORT_443_TCP_ADDR": API_SERVER,
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def contents() -> list[dict[str, Any]]:
    """What comes with each container, once for each of its mounts."""
    config_map = {
        "metadata": {"name": "train-cfg", "namespace": "team-a"},
        "data": {"a.yaml": "rate: 0.1\nsteps: 100\n", "b.yaml": "unused"},
        "binaryData": {"x.bin": "AAEC"},
    }
    secret = {
        "metadata": {"name": "train-pw", "namespace": "team-a"},
        "data": {"pw": base64.b64encode(b"correct horse").decode()},
        "type": "Opaque",
    }
    token = {
        "metadata": {"name": "tok", "creationTimestamp": None},
        "data": {"token": "header.claims.signature"},
    }
    nothing = {"projectedvolumemaps": None, "secrets": None, "emptyDirs": None}
    return [
        {"name": "prep", "configMaps": [config_map], **nothing},
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
