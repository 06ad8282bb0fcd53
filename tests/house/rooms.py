"""The rooms of our packages, from low to high: see test_rooms.py."""

from __future__ import annotations

MOST_MODULES = 12

# Package -> its rooms, from low to high: a room imports only what stands before it. Rooms in one
# line stand side by side and do not import each other. "" is the top of the package, and a star
# every room of a folder that no other line names.
ROOMS: dict[str, list[list[str]]] = {
    "templates": [
        ["common"],
        ["nats"],
        ["settings"],
        ["site"],
        ["kube_api"],
        ["program"],
        ["pod"],
        ["job"],
        ["resolve"],
        ["script", "manifests"],
        ["translation"],
        ["protocol"],
        ["cli"],
    ],
    "plugin_server": [
        ["common"],
        ["interlink"],
        ["state"],
        ["nats"],
        ["pods"],
        ["kubernetes"],
        ["service"],
        ["http"],
        [""],
    ],
    "submitter": [
        ["common"],
        ["config"],
        ["store"],
        ["tokens"],
        ["backends"],
        ["backends/*"],
        ["backends/podman"],
        ["jobs"],
        ["pool"],
        ["cli"],
        [""],
    ],
    "kueue_nats": [
        ["spec"],
        ["pools"],
        ["plan"],
        ["kube"],
        ["status"],
        ["reconcile"],
        ["operator"],
        [""],
    ],
}

# What the rooms have still to keep; each is found as it is written here.
EXCEPTIONS: list[str] = [
    "plugin_server/connection.py touches clock",
    "plugin_server/connection.py touches flask",
    "plugin_server/connection.py touches log",
    "plugin_server/connection.py touches loop",
    "plugin_server/connection.py touches network",
    "plugin_server/http/api.py touches loop",
    "plugin_server/nats/ does not touch clock",
    "plugin_server/nats/ does not touch log",
    "plugin_server/nats/ does not touch random",
    "plugin_server/pods/create.py touches loop",
    "plugin_server/pods/delete.py touches loop",
    "plugin_server/pods/logs.py touches loop",
    "plugin_server/pods/outbox.py touches loop",
    "plugin_server/pods/outbox.py touches random",
    "plugin_server/service/service.py touches loop",
    "plugin_server/state/job_lookup.py imports plugin_server.nats.bridge.Bridge",
    "plugin_server/state/job_lookup.py imports plugin_server.nats.bridge.BridgeError",
    "plugin_server/state/job_lookup.py imports plugin_server.nats.gateway.Gateway",
    "plugin_server/state/pools.py touches loop",
    "plugin_server/state/resync.py imports plugin_server.nats.gateway.Gateway",
    "plugin_server/state/resync.py touches loop",
    "plugin_server/worker.py touches clock",
    "plugin_server/worker.py touches network",
    "plugin_server/worker.py touches threads",
]

# Names of more than one class: only where they mean the same.
HOMONYMS: list[str] = [
    "Access",
    "Asked",
    "Cluster",
    "ClusterError",
    "Commands",
    "Entry",
    "Host",
    "Identity",
    "Kubernetes",
    "Logs",
    "Metrics",
    "Missing",
    "Options",
    "Orphans",
    "Podman",
    "Programs",
    "Refused",
    "Request",
    "Resources",
    "Settings",
    "Site",
    "Source",
    "Spool",
    "State",
    "Statuses",
    "Window",
    "_Loader",
]
