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

# Names of more than one class: only where they mean the same.
HOMONYMS: list[str] = [
    "Metrics",
    "Options",
    "Settings",
]
