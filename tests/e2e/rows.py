"""Pods for the rows of docs/pods.md, each of which ends by itself and says what it has seen."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.site import config_map, pod, secret, sh

Json = dict[str, Any]


class Row(NamedTuple):
    """A pod, and the objects that it needs."""

    pod: Json
    needs: tuple[Json, ...] = ()


ROWS: dict[str, Row] = {}


def row(name: str, *containers: Json, needs: tuple[Json, ...] = (), **spec: Any) -> None:
    """Note one."""
    ROWS[name] = Row(pod(*containers, name=name, **spec), needs)


def mount(name: str, path: str, **more: Any) -> Json:
    return {"name": name, "mountPath": path, **more}


WORDS = config_map("words", data={"a": "apple\n", "b.txt": "two\nlines"}, binaryData={"x": "AAEC"})
KEYS = secret("keys", stringData={"password": "pass 'word' $HOME", "user": "alice"})
SHOW = 'for f; do echo "$f: $(od -An -c "$f" | tr -s " \\n" " ")"; done'

# --- commands -------------------------------------------------------------------------------------

row("exit-code", sh("echo out; echo err >&2; exit 3"))
row("success", sh("echo done"))
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

# --- volumes --------------------------------------------------------------------------------------

row(
    "empty-dir",
    sh("until test -e /d/x; do sleep 0.1; done; cat /d/x", volumeMounts=[mount("d", "/d")]),
    sh("echo shared >/e/y; mv /e/y /e/x", volumeMounts=[mount("d", "/e")]),
    volumes=[{"name": "d", "emptyDir": {}}],
)
row(
    "memory-dir",
    sh("echo kept >/m/x; cat /m/x", volumeMounts=[mount("m", "/m")]),
    volumes=[{"name": "m", "emptyDir": {"medium": "Memory"}}],
)
row(
    "config-map",
    sh(
        f"set -- /c/* /i/deep/er; {SHOW}; stat -L -c %a /i/deep/er; "
        "touch /c/new 2>/dev/null || echo read-only",
        volumeMounts=[mount("c", "/c"), mount("i", "/i", readOnly=True)],
    ),
    needs=(WORDS,),
    volumes=[
        {"name": "c", "configMap": {"name": "words"}},
        {
            "name": "i",
            "configMap": {
                "name": "words",
                "items": [{"key": "a", "path": "deep/er", "mode": 0o444}],
            },
        },
    ],
)
row(
    "secret",
    sh(
        f"set -- /s/*; {SHOW}; stat -L -c %a /s/user",
        volumeMounts=[mount("s", "/s", readOnly=True)],
    ),
    needs=(KEYS,),
    volumes=[{"name": "s", "secret": {"secretName": "keys", "defaultMode": 0o400}}],
)
row(
    "projected",
    sh(
        f"set -- /p/words /p/labels /p/name; {SHOW}; test -s /p/token && echo token",
        volumeMounts=[mount("p", "/p")],
    ),
    needs=(WORDS,),
    volumes=[
        {
            "name": "p",
            "projected": {
                "sources": [
                    {"configMap": {"name": "words", "items": [{"key": "a", "path": "words"}]}},
                    {"serviceAccountToken": {"path": "token"}},
                    {
                        "downwardAPI": {
                            "items": [
                                {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                                {
                                    "path": "labels",
                                    "fieldRef": {"fieldPath": "metadata.labels['app']"},
                                },
                            ]
                        }
                    },
                ]
            },
        }
    ],
)
row(
    "downward",
    sh(
        "cat /w/app; echo; cat /w/cpu; echo; cat /w/memory",
        volumeMounts=[mount("w", "/w")],
        resources={"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}},
    ),
    volumes=[
        {
            "name": "w",
            "downwardAPI": {
                "items": [
                    {"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}},
                    {
                        "path": "cpu",
                        "resourceFieldRef": {
                            "containerName": "c0",
                            "resource": "requests.cpu",
                            "divisor": "1m",
                        },
                    },
                    {
                        "path": "memory",
                        "resourceFieldRef": {"containerName": "c0", "resource": "limits.memory"},
                    },
                ]
            },
        }
    ],
)
row(
    "sub-path",
    sh(
        "cat /etc/one; echo x >/v/made/y; ls /v",
        volumeMounts=[
            mount("c", "/etc/one", subPath="a"),
            mount("d", "/v"),
            mount("d", "/v2", subPath="made"),
        ],
    ),
    needs=(WORDS,),
    volumes=[{"name": "c", "configMap": {"name": "words"}}, {"name": "d", "emptyDir": {}}],
)

# --- containers -----------------------------------------------------------------------------------

D = [{"name": "d", "emptyDir": {}}]
ON_D = [mount("d", "/d")]


def init(name: str, script: str, **more: Any) -> Json:
    return {"name": name, "image": "busybox:1.36", **sh(script, volumeMounts=ON_D, **more)}


row(
    "inits",
    sh("cat /d/order", volumeMounts=ON_D),
    initContainers=[init("i1", "echo 1 >>/d/order; echo one"), init("i2", "echo 2 >>/d/order")],
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

# --- hooks ----------------------------------------------------------------------------------------

row(
    "post-start",
    sh(
        "until test -e /d/x; do sleep 0.1; done; cat /d/x",
        volumeMounts=ON_D,
        lifecycle={
            "postStart": {"exec": {"command": ["sh", "-c", "echo hook >/d/y; mv /d/y /d/x"]}}
        },
    ),
    volumes=D,
)
