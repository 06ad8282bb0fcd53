"""Rows of docs/pods.md: volumes."""

from __future__ import annotations

from tests.e2e.row import (
    CLAIM,
    CLUSTER,
    IN_THE_MESSAGE,
    KEYS,
    SHOW,
    TRY_TO_WRITE,
    WAIT,
    WORDS,
    D,
    mount,
    row,
)
from tests.support.script_runner import sh

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

row(
    "sub-path-of-variables",
    sh(
        "echo x >/v/y; ls /all",
        env=[{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        volumeMounts=[mount("d", "/v", subPathExpr="of-$(NAME)"), mount("d", "/all")],
    ),
    volumes=D,
)
row(
    "directory-in-a-volume",
    sh("pwd; ls /d", workingDir="/d/new", volumeMounts=[mount("d", "/d")]),
    volumes=D,
)
row(
    "read-only",
    sh(TRY_TO_WRITE.format("/d/x"), volumeMounts=[mount("d", "/d", readOnly=True)]),
    volumes=D,
)
row(
    "mounts-in-mounts",
    sh(
        "echo x >/d/x; ls /d; cat /d/in/side/a",
        volumeMounts=[mount("c", "/d/in/side"), mount("d", "/d")],
    ),
    needs=(WORDS,),
    volumes=[*D, {"name": "c", "configMap": {"name": "words"}}],
)
row(
    "host-path",
    sh(
        f"test -e /h/env && echo there; {TRY_TO_WRITE.format('/h/new')}",
        volumeMounts=[mount("h", "/h", readOnly=True)],
    ),
    volumes=[{"name": "h", "hostPath": {"path": "/usr/bin", "type": "Directory"}}],
    refused={CLUSTER: "/usr/bin is not allowed at this site"},
)
row(
    "claim",
    sh("echo kept >/c/x; cat /c/x", volumeMounts=[mount("c", "/c")]),
    volumes=[{"name": "c", "persistentVolumeClaim": {"claimName": CLAIM}}],
)
row(
    "ephemeral",
    sh("echo kept >/d/x; cat /d/x", volumeMounts=[mount("d", "/d")]),
    volumes=[
        {
            "name": "d",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {
                        "storageClassName": "",
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Mi"}},
                    }
                }
            },
        }
    ],
)
row(
    "optional-key",
    sh("ls /c", volumeMounts=[mount("c", "/c")]),
    needs=(WORDS,),
    volumes=[
        {
            "name": "c",
            "configMap": {
                "name": "words",
                "items": [{"key": key, "path": key} for key in ("a", "not-there")],
                "optional": True,
            },
        }
    ],
)
row(
    "too-much",
    sh(
        "trap 'exit 3' TERM; head -c 3000000 /dev/zero >/d/x; " + WAIT,
        volumeMounts=[mount("d", "/d")],
    ),
    terminationGracePeriodSeconds=5,
    volumes=[{"name": "d", "emptyDir": {"sizeLimit": "1Mi"}}],
    differs={"main/c0/message": IN_THE_MESSAGE},
)
