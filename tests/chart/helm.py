"""helm, the chart, and values to render it with."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Optional

import yaml

from tests.support.kueue_bed import part

REPO = Path(__file__).resolve().parents[2]
CHART = REPO / "chart"
RELEASE, NAMESPACE = "il", "batch"
SITE_KEY = "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK"
KUBERNETES = ("--kube-version", "1.36.2")  # a helm without a cluster has to be told
TEMPLATE = ("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *KUBERNETES)
REDIS_URL = "rediss://redis.example.org:6380"

Json = dict[str, Any]

MINIMAL: Json = {
    "images": {"registry": "registry.example.org/interlink"},
    "hostname": "nats.example.org",
    "ingress": {"tls": {"issuer": {"name": "letsencrypt"}}},
}
EVERYTHING: Json = {
    "commonLabels": {"team": "batch"},
    "commonAnnotations": {"example.org/owner": "ops"},
    "subjectRoot": "sites.prod",
    "images": {"registry": "registry.example.org/interlink", "pullSecrets": [{"name": "pull"}]},
    "hostname": "nats.example.org",
    "virtualNodes": [
        {"name": "cpu", "defaultPool": "hpc-cpu"},
        {
            "name": "gpu",
            "capacity": {"accelerators": {"nvidia.com/gpu": "64"}},
            "nodeLabels": {"site/kind": "gpu"},
            "nodeTaints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
            "projectedVolumes": False,
            "plugin": {
                "orphans": False,
                "state": {"existingClaim": "plugin-state"},
                "settings": {"create_timeout_s": 90, "server": {"workers": 2}},
                "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            },
            "virtualKubelet": {"image": {"digest": "sha256:" + "a" * 64}},
        },
    ],
    "nats": {
        "sites": [
            {"name": "hpc", "pools": ["hpc-cpu", "hpc-gpu"], "nkey": SITE_KEY},
            {"name": "lab", "pools": ["lab"]},
        ],
        "extraConfig": "write_deadline: 10s",
        "extraEnv": [{"name": "GOMEMLIMIT", "value": "400MiB"}],
    },
    "ingress": {
        "className": "nginx",
        "annotations": {"example.org/timeout": "3600"},
        "tls": {"secretName": "nats-tls"},
    },
    "masterQueue": {
        "enabled": True,
        "spec": {
            "template": {"cohort": "masterqueue"},
            "flavors": [
                {
                    "name": "sites",
                    "natsFlavor": {
                        "natsSubject": "sites.prod.resources",
                        "virtualNode": "cpu",
                        "poolTimeout": 30,
                        "poolRegExp": ".*",
                    },
                    "nominalQuota": {"pods": 100},
                    "canLendTo": [{"queue": "team", "lendingLimit": {"pods": 30}}],
                }
            ],
        },
    },
    "redis": {"enabled": True},
    "pod": {
        "labels": {"tier": "infra"},
        "annotations": {"example.org/scrape": "no"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "priorityClassName": "system-cluster-critical",
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
            }
        ],
        "extraVolumes": [{"name": "extra", "emptyDir": {}}],
        "extraContainers": [{"name": "beside", "image": "busybox:1.36"}],
        "extraInitContainers": [{"name": "before", "image": "busybox:1.36"}],
    },
    "networkPolicies": {
        "apiServerCidrs": ["10.0.0.0/24"],
        "ingressNamespaces": [{"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}],
        "monitoringNamespaces": [{"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "Batch"}},
    "test": {"pool": "hpc-cpu"},
}
SECRETS = {  # the values that are secrets
    "iamClientSecret": "the-client-at-the-front-door",
    "oauth2ProxyCookieSecret": "0123456789abcdef0123456789ABCDEF",
    "backendIamClientSecret": "the-client-of-the-element",
}
CONDOR: Json = {
    "images": {"registry": "registry.example.org/interlink"},
    "condor": {"enabled": True},
    "hostname": "interlink.example.org",
    "oauth2ProxyIamIssuer": "https://iam.example.org/",
    "iamClientId": "interlink",
    "backendIamIssuer": "https://iam.element.example.org/",
    "backendIamClientId": "interlink-ce",
    "pluginCondorPool": "ce.example.org:9618",
    "pluginCondorScheduler": "ce.example.org",
    "certManagerEmailAddress": "ops@example.org",
    **SECRETS,
}
CONDOR_EVERYTHING: Json = {
    **{key: EVERYTHING[key] for key in ("commonLabels", "commonAnnotations", "subjectRoot", "pod")},
    **{key: EVERYTHING[key] for key in ("images", "networkPolicies", "serviceMonitor", "redis")},
    **{key: value for key, value in CONDOR.items() if key not in ("images", *SECRETS)},
    "iamClientSecretFrom": {"name": "front", "key": "secret"},
    "oauth2ProxyCookieSecretFrom": {"name": "front", "key": "cookie"},
    "backendIamClientSecretFrom": {"name": "element", "key": "secret"},
    "backendIamRefreshTokenFrom": {"name": "element", "key": "refresh"},
    "backendIamAudience": "https://ce.example.org",
    "backendIamScopes": ["condor:/READ", "condor:/WRITE"],
    "backendIamCaSecret": "issuer-ca",
    "certManagerEmailAddress": "",
    "ingress": {"className": "traefik", "tls": {"issuer": {"name": "ours", "kind": "Issuer"}}},
    "oauth2Proxy": {
        "audiences": ["https://interlink.example.org"],
        "allowedGroups": ["cms/production", 'with "quotes"'],
        "groupsClaim": "wlcg.groups",
        "caSecret": "iam-ca",
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    },
    "virtualNode": {"plugin": {"state": {"existingClaim": "plugin-state"}}},
    "condor": {
        "enabled": True,
        "pool": "element",
        "caSecret": "grid-ca",
        "settings": {
            "resources": {"cpu": "500", "pods": "500"},
            "options": {"disk": "10Gi", "tokens": {"audience": "another"}},
            "build": {"images": {"unpacked": "/cvmfs/unpacked.cern.ch"}},
        },
        "submitter": {
            "replicas": 2,
            "state": {"accessMode": "ReadWriteMany", "storageClass": "nfs", "size": "50Gi"},
            "pod": {"nodeSelector": {"network": "outside"}},
        },
    },
}
MATRIX: dict[str, Json] = {
    "minimal": MINIMAL,
    "everything": EVERYTHING,
    "without-ingress": {
        **MINIMAL,
        "ingress": {"enabled": False},
        "nats": {
            "websocket": {"tlsSecret": "websocket-tls"},
            "service": {"type": "LoadBalancer", "annotations": {"example.org/address": "a"}},
        },
    },
    "in-clear-inside": {**MINIMAL, "nats": {"tls": {"enabled": False}}},
    "existing-secrets": {
        **MINIMAL,
        "ingress": {"tls": {"secretName": "ours"}},
        "nats": {
            "existingSecret": "users",
            "tls": {"existingSecret": "server"},
            "sites": [{"name": "lab", "pools": ["lab"]}],
        },
        "redis": {"enabled": True, "existingSecret": "redis"},
    },
    "existing-servers": {
        **MINIMAL,
        "nats": {"enabled": False},
        "externalNats": {
            "servers": ["wss://nats.example.org:443"],
            "caSecret": "ca",
            "plugin": {"secretName": "nats-plugin"},
            "kueue": {"secretName": "nats-kueue", "kind": "password", "user": "k", "key": "pw"},
        },
        "externalRedis": {"url": REDIS_URL, "passwordSecret": "redis"},
    },
    "only-virtual-nodes": {
        **MINIMAL,
        "kueueNats": {"enabled": False},
        "networkPolicies": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "virtualNode": {"plugin": {"orphans": False}},
    },
    "condor": CONDOR,
    "condor-everything": CONDOR_EVERYTHING,
    "condor-without-ingress": {
        **CONDOR,
        "certManagerEmailAddress": "",
        "oauth2ProxyCookieSecret": "",
        "ingress": {"enabled": False},
        "condor": {"enabled": True, "submitter": {"state": {"existingClaim": "ours"}}},
    },
}


def helm(
    *words: str,
    values: Optional[Json] = None,
    kubeconfig: Optional[Path] = None,
    seconds: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run helm to its end; values go in through its input."""
    environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
    if kubeconfig is not None:
        environment["KUBECONFIG"] = str(kubeconfig)
    return subprocess.run(
        [str(part("helm") / "helm"), *words, *(["--values", "-"] if values is not None else [])],
        input=json.dumps(values),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )


def text_of(values: Json, *words: str) -> str:
    """The chart with these values, as YAML."""
    done = helm(*TEMPLATE, "--include-crds", *words, values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def objects(name: str) -> list[Json]:
    """All objects of an entry of the matrix."""
    return [found for found in yaml.safe_load_all(text_of(MATRIX[name])) if found]


def one(found: list[Json], kind: str, name: str) -> Json:
    """The object of this kind and name."""
    (only,) = (o for o in found if o["kind"] == kind and o["metadata"]["name"] == name)
    return only


def pods(found: list[Json]) -> dict[str, Json]:
    """The specs of all pods, also of those that others make."""
    specs = {}
    for thing in found:
        if thing["kind"] == "Pod":
            specs[thing["metadata"]["name"]] = thing["spec"]
        elif thing["kind"] in ("Deployment", "StatefulSet"):
            specs[thing["metadata"]["name"]] = thing["spec"]["template"]["spec"]
    return specs


def containers(spec: Json) -> list[Json]:
    """All of a pod, sidecars too, but for the user's own."""
    every = [*spec.get("initContainers", []), *spec["containers"]]
    return [found for found in every if found["name"] not in ("before", "beside")]


def refusal(values: Json) -> str:
    """What helm says to values that are wrong."""
    done = helm(*TEMPLATE, values=values)
    assert done.returncode != 0, done.stdout[:2000]
    return done.stderr
