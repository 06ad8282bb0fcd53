"""Rows of docs/pods.md: containers, resources, time, hooks and probes."""

from __future__ import annotations

from tests.e2e.row import (
    APPTAINER,
    IN_THE_MESSAGE,
    ON_D,
    PODMAN,
    WAIT,
    D,
    execute,
    init,
    probe,
    row,
)
from tests.support.script_runner import sh

# --- containers -----------------------------------------------------------------------------------

row(
    "inits",
    sh("cat /d/order", volumeMounts=ON_D),
    initContainers=[init("i1", "echo 1 >>/d/order; echo one"), init("i2", "echo 2 >>/d/order")],
    volumes=D,
)
row(
    "init-fails",
    sh("echo never", volumeMounts=ON_D),
    initContainers=[init("i1", "echo 1"), init("i2", "echo bad; exit 7"), init("i3", "echo 3")],
    volumes=D,
    differs=dict.fromkeys(
        ("main/c0/exit", "main/c0/message", "main/c0/state"), "are shown as ended with 0"
    ),
)
row(
    "init-tries-again",
    sh("cat /d/x", volumeMounts=ON_D),
    initContainers=[init("i1", "test -e /d/x && exit; echo made >/d/x; exit 6")],
    restartPolicy="OnFailure",
    volumes=D,
)
row("two-one-fails", sh("sleep 2; echo a"), sh("echo b; exit 5"))
row(
    "second-time",
    sh("echo try; test -e /d/x || { >/d/x; exit 4; }", volumeMounts=ON_D),
    restartPolicy="OnFailure",
    volumes=D,
)
row(
    "sidecar",
    sh("until test -s /d/s; do sleep 0.1; done; cat /d/s", volumeMounts=ON_D),
    initContainers=[
        init(
            "side",
            "trap 'exit 0' TERM; echo up >/d/s; while :; do sleep 0.1; done",
            restartPolicy="Always",
        )
    ],
    terminationGracePeriodSeconds=5,
    volumes=D,
)
row("message", sh("echo -n told >/dev/termination-log; exit 2"))
row(
    "message-of-log",
    sh("echo last words; exit 2", terminationMessagePolicy="FallbackToLogsOnError"),
)
row("message-path", sh("echo -n there >/tmp/m", terminationMessagePath="/tmp/m"))

row(
    "host-aliases",
    sh("awk '/^192.0.2.7/ { print $1, $2, $3 }' /etc/hosts"),
    hostAliases=[{"ip": "192.0.2.7", "hostnames": ["alias", "alias.example.org"]}],
)

# --- resources, time ------------------------------------------------------------------------------

row(
    "memory-limit",
    {
        # It is the container's first process itself that grows, and is killed.
        "command": [
            "awk",
            'BEGIN { for (; n < 64; n++) a[n] = sprintf("%1048576s", "") n; system("sleep 60") }',
        ],
        "resources": {"limits": {"memory": "32Mi"}},
    },
    differs={"main/c0/message": IN_THE_MESSAGE},
)
row("little-memory", sh("echo enough", resources={"limits": {"memory": "32Mi"}}))
row(
    "deadline",
    sh(f"trap 'echo told; exit 3' TERM; echo begin; {WAIT}"),
    activeDeadlineSeconds=40,
    terminationGracePeriodSeconds=20,
    differs={"main/c0/message": IN_THE_MESSAGE},
)
row(
    "deadline-ignored",
    sh(f"trap '' TERM; echo begin; {WAIT}"),
    activeDeadlineSeconds=40,
    terminationGracePeriodSeconds=2,
    differs={"main/c0/message": IN_THE_MESSAGE},
)
row(
    "deadline-without-handler",
    sh("echo begin; exec sleep 600"),
    activeDeadlineSeconds=40,
    terminationGracePeriodSeconds=2,
    differs={"main/c0/message": IN_THE_MESSAGE},
    under={APPTAINER: {"main/c0/exit": "ends it, with 143"}},
)

# --- hooks, probes --------------------------------------------------------------------------------

SECOND = "test -e /d/y && {{ {}; exit 0; }}; trap 'mv /d/x /d/y; exit 5' TERM; echo first; >/d/x; "
SECOND += WAIT
FAILS = probe(execute("test ! -e /d/x"), failureThreshold=1)
LIVES = probe(execute(">/d/live"))
UNTIL_LIVE = "until test -e /d/live; do sleep 0.1; done; echo lived"

row(
    "post-start",
    sh(
        "until test -e /d/x; do sleep 0.1; done; cat /d/x",
        volumeMounts=ON_D,
        lifecycle={"postStart": execute("echo hook >/d/y; mv /d/y /d/x")},
    ),
    volumes=D,
)
row(
    "post-start-fails",
    sh(
        f"trap 'exit 6' TERM; >/d/x; {WAIT}",
        volumeMounts=ON_D,
        lifecycle={"postStart": execute("until test -e /d/x; do sleep 0.1; done; exit 1")},
    ),
    terminationGracePeriodSeconds=20,
    volumes=D,
    under={runtime: {"main/c0/message": IN_THE_MESSAGE} for runtime in (APPTAINER, PODMAN)},
)
row(
    "pre-stop",
    sh(
        SECOND.format("cat /d/hook"),
        volumeMounts=ON_D,
        livenessProbe=FAILS,
        lifecycle={"preStop": execute("echo hook >/d/hook")},
    ),
    restartPolicy="OnFailure",
    terminationGracePeriodSeconds=20,
    volumes=D,
)
row(
    "liveness",
    sh(SECOND.format("echo second"), volumeMounts=ON_D, livenessProbe=FAILS),
    restartPolicy="OnFailure",
    terminationGracePeriodSeconds=20,
    volumes=D,
)
row(
    "startup",
    sh(
        f"sleep 2; >/d/x; {UNTIL_LIVE}",
        volumeMounts=ON_D,
        startupProbe=probe(execute("test -e /d/x"), failureThreshold=60),
        livenessProbe=LIVES,
    ),
    volumes=D,
)
for kind, port, action in (
    ("http", 18123, {"httpGet": {"port": 18123, "path": "/index.html"}}),
    ("tcp", 18124, {"tcpSocket": {"port": 18124}}),
):
    row(
        f"startup-{kind}",
        sh(
            f"mkdir /d/www; >/d/www/index.html; httpd -p {port} -h /d/www; {UNTIL_LIVE}",
            volumeMounts=ON_D,
            startupProbe=probe(action, failureThreshold=60),
            livenessProbe=LIVES,
        ),
        volumes=D,
    )

# A server whose only program notes that it was called.
SERVE = "mkdir -p /d/www/cgi-bin; cd /d/www/cgi-bin; "
SERVE += "printf '#!/bin/sh\\necho called >/d/hook; echo\\n' >stop; chmod +x stop; "
SERVE += "httpd -p 18125 -h /d/www; "
row(
    "pre-stop-http",
    sh(
        f"test -e /d/y || {{ {SERVE} }}; {SECOND.format('cat /d/hook')}",
        volumeMounts=ON_D,
        livenessProbe=FAILS,
        lifecycle={"preStop": {"httpGet": {"port": 18125, "path": "/cgi-bin/stop"}}},
    ),
    restartPolicy="OnFailure",
    terminationGracePeriodSeconds=20,
    volumes=D,
)
row(
    "pre-stop-sleep",
    sh(
        "test -e /d/y && { cat /d/y; exit 0; }; "
        "trap 'echo $(($(date +%s) - $(cat /d/failed) >= 2)) >/d/y; rm /d/x; exit 5' TERM; "
        f">/d/x; {WAIT}",
        volumeMounts=ON_D,
        livenessProbe=probe(
            execute("test ! -e /d/x || { test -e /d/failed || date +%s >/d/failed; exit 1; }"),
            failureThreshold=1,
        ),
        lifecycle={"preStop": {"sleep": {"seconds": 3}}},
    ),
    restartPolicy="OnFailure",
    terminationGracePeriodSeconds=20,
    volumes=D,
)
