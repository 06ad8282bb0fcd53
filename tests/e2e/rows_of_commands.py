"""Rows of docs/pods.md: commands, environment, security, images."""

from __future__ import annotations

from tests.e2e.row import (
    APPTAINER,
    CLUSTER,
    IN_THE_MESSAGE,
    KEYS,
    PODMAN,
    TRY_TO_WRITE,
    WORDS,
    row,
)
from tests.support.script_runner import BUSYBOX, sh

# --- commands -------------------------------------------------------------------------------------

row("exit-code", sh("echo out; exit 3"))
row("errors", sh("echo err >&2"))  # a node reads the two streams in any order
row("success", sh("echo done"))
row("no-words", {})  # the image's command is a shell, whose input is empty
row("only-args", {"args": ["echo", "a  b", "*"]})
row("only-command", {"command": ["echo", "a  b", "*"]})
row(
    "args",
    sh(
        'printf "<%s>\\n" "$@"',
        "a b",
        "",
        "*",
        "$(N)",
        "$$(N)",
        "$(NO)",
        env=[{"name": "N", "value": "v"}],
    ),
)
row("working-dir", sh("pwd", workingDir="/tmp"))
row("stdin", sh("wc -c"))
row(
    "no-program",
    {"command": ["/no/such/program"]},
    under={
        APPTAINER: {
            "cause": "gives exit code 255",
            "main/c0/exit": "gives exit code 255",
            "main/c0/log": "with Apptainer's words",
            "main/c0/message": "with Apptainer's words",
        },
        PODMAN: {
            "cause": "where a node has `StartError`",
            "main/c0/exit": "with 126 or 127",
            "main/c0/log": "and podman's words in its log",
            "main/c0/message": "where a node has `StartError`",
        },
        CLUSTER: {"main/c0/message": IN_THE_MESSAGE},
    },
)
row(
    "no-directory",
    sh("pwd", workingDir="/no/such/folder"),
    under={
        APPTAINER: {
            "phase": "is not made",
            "main/c0/exit": "gives exit code 255",
            "main/c0/log": "with Apptainer's words",
        },
        PODMAN: {
            "phase": "a `workingDir` that is missing in the image is not made",
            "main/c0/exit": "with 126 or 127",
            "main/c0/log": "and podman's words in its log",
        },
    },
)

# --- environment ----------------------------------------------------------------------------------

row(
    "environment",
    sh(
        'printf "[%s]\\n" "$QUOTES" "$LINES" "$EMOJI" "$EXPANDED" "$NAME" "$SPACE" "$LABEL" '
        '"$PASSWORD" "$FROM_a" "$CPU" "$EMPTY" "${NOTHING-unset}"',
        env=[
            {"name": "QUOTES", "value": 'it\'s "so" `ls` $(ls) \\n \\\\'},
            {"name": "LINES", "value": "one\ntwo\n\nthree "},
            {"name": "EMOJI", "value": "ü 🚀"},
            {"name": "BASE", "value": "b"},
            {"name": "EXPANDED", "value": "$(BASE)/$(NOT) $$(BASE)"},
            {"name": "EMPTY", "value": ""},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "SPACE", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {
                "name": "PASSWORD",
                "valueFrom": {"secretKeyRef": {"name": "keys", "key": "password"}},
            },
            {
                "name": "NOTHING",
                "valueFrom": {"configMapKeyRef": {"name": "no", "key": "no", "optional": True}},
            },
            {"name": "CPU", "value": "1"},
        ],
        envFrom=[{"configMapRef": {"name": "words"}, "prefix": "FROM_"}],
    ),
    needs=(WORDS, KEYS),
)

row(
    "secret-variables",
    sh(
        'echo "$S_password $S_user $user"',
        env=[{"name": "user", "value": "own"}],
        envFrom=[
            {"secretRef": {"name": "keys"}, "prefix": "S_"},
            {"secretRef": {"name": "keys"}},
            {"secretRef": {"name": "not-there", "optional": True}},
        ],
    ),
    needs=(KEYS,),
)
row("big-variable", sh('echo "${#BIG}"', env=[{"name": "BIG", "value": "x" * 100_000}]))
row("home", sh('echo "$HOME"; cd; pwd'))
row("pod-name", sh('echo "$HOSTNAME"'))
row(
    "host-name",
    sh("hostname"),
    under={
        APPTAINER: {"main/c0/log": "is the node's, but for podman with a network of the pod's own"}
    },
)

# --- security, images -----------------------------------------------------------------------------

row(
    "read-only-root",
    sh(TRY_TO_WRITE.format("/new"), securityContext={"readOnlyRootFilesystem": True}),
)
row("writable-root", sh("echo kept >/new && cat /new"))
row(
    "narrow",
    sh(
        "echo ran",
        securityContext={
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 1234,
        },
    ),
)
row(
    "user",
    sh("id -u", securityContext={"runAsUser": 1234}),
    under={APPTAINER: {"main/c0/log": "everything runs as the site's user"}},
)
row("whole-name", sh("echo ran", image=f"docker.io/library/{BUSYBOX}"))
