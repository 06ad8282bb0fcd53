"""Rows of docs/pods.md: what no site can give, and what only those do that allow it."""

from __future__ import annotations

from tests.e2e.row import CLUSTER, NO_PLACE, ON_D, PODMAN, D, mount, probe, refusal, row
from tests.support.script_runner import sh

NOT_ALLOWED = "this site does not allow it"

refusal(
    "privileged",
    f"securityContext.privileged: {NOT_ALLOWED}",
    sh("true", securityContext={"privileged": True}),
)
refusal(
    "more-rights",
    f"securityContext.capabilities.add: {NOT_ALLOWED}",
    sh("true", securityContext={"capabilities": {"add": ["NET_ADMIN"]}}),
)
refusal("host-pid", f"pod.spec.hostPID: {NOT_ALLOWED}", sh("true"), hostPID=True)
refusal("host-ipc", f"pod.spec.hostIPC: {NOT_ALLOWED}", sh("true"), hostIPC=True)
row(
    "host-network",
    sh("echo ran"),
    hostNetwork=True,
    refused=dict.fromkeys((PODMAN, CLUSTER), f"pod.spec.hostNetwork: {NOT_ALLOWED}"),
)
refusal(
    "csi",
    "volumes of type csi are not supported",
    sh("true", volumeMounts=ON_D),
    volumes=[{"name": "d", "csi": {"driver": "tests.example.org"}}],
)
refusal(
    "nfs",
    "this site has no place for nfs.example.org:/x",
    sh("true", volumeMounts=ON_D),
    volumes=[{"name": "d", "nfs": {"server": "nfs.example.org", "path": "/x"}}],
    cluster="volumes of type nfs are not supported in this pool",
)
refusal(
    "claim-without-place",
    f"/{NO_PLACE} (volumes.claims)",
    sh("true", volumeMounts=ON_D),
    volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": NO_PLACE}}],
    cluster=f"/{NO_PLACE}",
)
refusal(
    "on-the-root",
    "must be a path below /",
    sh("true", volumeMounts=[mount("d", "/")]),
    volumes=D,
)
refusal(
    "read-only-to-the-bottom",
    "recursiveReadOnly: not supported",
    sh("true", volumeMounts=[mount("d", "/d", readOnly=True, recursiveReadOnly="Enabled")]),
    volumes=D,
)
refusal(
    "grpc",
    "grpc probes are not supported",
    sh("true", livenessProbe=probe({"grpc": {"port": 18126}})),
)
refusal(
    "own-restarts",
    "restartPolicy: only the pod and init containers may have one",
    sh(
        "true",
        restartPolicy="Never",
        restartPolicyRules=[
            {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}},
        ],
    ),
)
