"""Hostile pods, and what has to reach their containers.

Texts that Kubernetes leaves free (arguments, values, contents) are hostile in every pod: some
program on the way might take them for its own. Of those that have a form (names, paths, policies)
at most one is hostile in a pod, or none would ever run.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple, Optional
from uuid import NAMESPACE_URL, uuid5

from hypothesis import strategies as st

CANARY = "interlink-canary"  # a command that leaves a mark when anything runs it
LONGEST_NAME = 255  # bytes of a file's name, the kernel's limit
DUMPER = [os.path.realpath(sys.executable), "-I", "-S", str(Path(__file__).with_name("dumper.py"))]

COMMANDS = [
    text.replace("X", CANARY)
    for text in (
        "$(X)",
        "`X`",
        "; X",
        "& X &",
        "| X",
        "&& X",
        "|| X",
        "\nX\n",
        "\r\nX\r\n",
        "' ; X ; '",
        "'\nX\n'",
        '" ; X ; "',
        '"$(X)"',
        "'$(X)'",
        "\\'; X #",
        "$'\\n'X",
        "a[$(X)]",
        "x[`X`]=1",
        "$((a[$(X)]))",
        "${a:-$(X)}",
        "${x@P}$(X)",
        "<(X)",
        ">(X)",
        "); X; (",
        "}; X; {",
        "){ X; }; x(",
        "() { :; }; X",
        "{{ X }}",
        "{% raw %}X",
        "#}\nX",
        "EOF\nX\nEOF",
        "\x00X",
        "\u2028X",
        "!X",
        "%s$(X)",
        "-c X",
        "--eval=X",
        "%0aX",
    )
]
SHAPES = [
    "",
    " ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "x\n",
    "\nx",
    "\r",
    "x\r\ny",
    "'",
    '"',
    "''",
    '""',
    "\\",
    "\\\\",
    "x\\",
    "\\n",
    "`",
    "$",
    "$$",
    "$$$$(A)",
    "$(A)",
    "$(",
    "$(A",
    "$()",
    "${A}",
    "$A",
    "$HOME",
    "${IFS}",
    "$IFS$9",
    "$'x'",
    "*",
    "?",
    "/*",
    "[a-z]*",
    "{a,b}",
    "{1..3}",
    "!(x)",
    "!!",
    "!-1:p",
    "^a^b",
    "~",
    "~root",
    "~/x",
    "-",
    "--",
    "-n",
    "-e",
    "-rf",
    "-c",
    "--help",
    "=",
    "a=b",
    "A+=b",
    "a b",
    "a  b",
    "#",
    "x#y",
    "# x",
    "%s",
    "%n%d%%",
    "%",
    ".",
    "..",
    "../x",
    "../../etc/passwd",
    "a/../b",
    "./a",
    "a//b",
    "a/",
    "/",
    "//",
    "/etc/passwd",
    "a,b",
    "a:b",
    "a;b",
    "a|b",
    "a&b",
    "<a>",
    "(a)",
    "[[ a ]]",
    "$[1+1]",
    "$((1+1))",
    "@",
    "a@b",
    "true",
    "null",
    "0",
    "-1",
    "1e3",
    "é",
    "e\u0301",
    "\u202eabc\u202c",
    "مرحبا",
    "日本語",
    "🦀",
    "👩‍🚀",
    "\ufeffx",
    "\u00a0",
    "\u2029",
    "\x00",
    "a\x00b",
    "\x01",
    "\x1b[31mx\x1b[0m",
    "\x7f",
    "\x85",
    "ı",
    "İ",
    "ß",
    "\\x41",
    "\\u0041",
    "x" * 63,
    "x" * 64,
    "x" * 255,
    "x" * 256,
    "é" * 128,
    "a/" * 130 + "a",
    "x" * 5000,
]
LONG = ["x" * 100_000, "é'" * 40_000, "x" * 131_071, "$(A)" * 34_000]
SHORT = COMMANDS + SHAPES
ALPHABET = "'\"\\`$(){}[]<>|&;*?!~#%=,:@^-_./ \n\r\t\x1b\x7fA1é\u0301\u202e\U0001f600"
TEXTS = st.one_of(
    st.sampled_from(SHORT * 3 + LONG), st.text(st.sampled_from(ALPHABET), max_size=12)
)

# Names that bash or a job script have their own use for, beside ordinary and impossible ones.
ENV_NAMES = """
    A B c http_proxy PATH HOME USER HOSTNAME TMPDIR SHELL TERM IFS PS1 PS4 PWD OLDPWD SHLVL _ UID
    EUID PPID GROUPS RANDOM SECONDS LINENO SRANDOM EPOCHSECONDS EPOCHREALTIME BASH BASHPID BASHOPTS
    SHELLOPTS BASH_ENV ENV BASH_FUNC_x%% BASH_VERSION POSIXLY_CORRECT LC_ALL LANG LANGUAGE FUNCNAME
    DIRSTACK HISTCMD OPTIND OPTARG REPLY PIPESTATUS COMP_WORDS COLUMNS LINES MAPFILE COPROC
    GLOBIGNORE TIMEFORMAT CDPATH EXECIGNORE PROMPT_COMMAND
    DIR RUN JOB SPOOL CACHE SCRATCH MEMORY BEGAN NAMESPACE POD RUNTIME OPTIONS RESTART GRACE
    DEADLINE CONTAINERS SUPERVISOR EMPTY_DIRS SIZED SIZES PAGE INTERLINK_CONTAINER INTERLINK_MESH
    n i x name index kind image env odd kept prefix entry command args options launcher code pid log
    workdir user file line now hex stop text sources targets modes namespace isolated join root verb
    odd.name with-dash 1st a/b x[0] é a\tb
""".split()  # fmt: skip
NAMES = st.one_of(st.sampled_from(ENV_NAMES), TEXTS)

# What a pod may say only in a certain form; at most one of these is hostile in a pod.
FORMS = """
    pod.name pod.namespace pod.uid label.key label.value annotation.key hostname subdomain nodeName
    serviceAccountName schedulerName priorityClassName nodeSelector.key nodeSelector.value
    restartPolicy toleration.key toleration.operator toleration.value toleration.effect
    pullSecret.name alias.ip alias.name owner.name volume.name configMap.name configMap.key
    item.path secret.name secret.key secret.type emptyDir.medium emptyDir.sizeLimit fieldPath
    container.name
    image imagePullPolicy command workingDir env.name mountPath subPath subPathExpr messagePath
    messagePolicy resource.name resource.amount port.name hook.command init.name jobScript
""".split()
NEED_MOUNTS = frozenset(
    """
    annotation.key label.value volume.name configMap.name configMap.key item.path secret.name
    secret.key secret.type emptyDir.medium emptyDir.sizeLimit fieldPath mountPath subPath
    subPathExpr
    messagePath
    """.split()
)

Tree = dict[str, Optional[bytes]]  # folders have no content


class Expected(NamedTuple):
    """What has to reach one process."""

    args: list[str]
    env: dict[str, str]
    cwd: str
    trees: dict[str, Tree]


class Case(NamedTuple):
    """A hostile pod, and what has to become of it."""

    text: str  # a create request, or manifests
    is_request: bool
    form: str  # the one form that is hostile; empty: none
    containers: dict[str, Expected]
    hook: Optional[Expected]
    answer: str  # the file that the hook writes its answer to
    message: Optional[str]  # of the main container's end
    may_fail: bool  # to start, as it would in a cluster


def expanded(text: str, env: dict[str, str]) -> str:
    """Kubernetes' expansion, said once more and in other words than ours."""
    values = {"$$": "$", **{f"$({name})": value for name, value in env.items()}}
    parts = re.split(r"(\$\$|\$\([^)]*\))", text)
    return "".join(values.get(part, part) for part in parts)


def absolute(path: str) -> str:
    """A path as the kernel takes it, from the root."""
    return posixpath.normpath("/" + path.lstrip("/"))


def tree_of(path: str, content: Optional[bytes]) -> Tree:
    """A file or folder and the folders above it."""
    found: Tree = {}
    parts = posixpath.normpath(path).split("/")
    for end in range(1, len(parts)):
        found["/".join(parts[:end])] = None
    found["/".join(parts)] = content
    return {} if path in ("", ".") else found


def no_place(path: str) -> bool:
    """Whether nothing can be mounted there, or only over something of the machine's own."""
    parts = absolute(path)[1:].split("/")
    too_long = any(len(part.encode()) > LONGEST_NAME for part in parts) or len(path.encode()) > 3000
    return too_long or os.path.lexists(f"/{parts[0]}")


class Maker:
    """Makes one case; ``folder`` is where its hook may write."""

    def __init__(self, draw: Any, folder: Path) -> None:
        self.draw = draw
        self.answer = str(folder / "answer")
        self.uid = str(
            uuid5(NAMESPACE_URL, str(folder))
        )  # of two jobs with one uid, one kills the other
        self.form = draw(st.sampled_from(FORMS + [""] * len(FORMS)))
        self.is_request = draw(st.integers(0, 4)) > 0
        self.has_mounts = self.form in NEED_MOUNTS or draw(st.integers(0, 9)) == 0
        self.host = self.text("hostname", "host")
        self.note, self.content, self.secret = draw(TEXTS), draw(TEXTS), draw(TEXTS)
        self.mount_path = self.text("mountPath", "/mnt/it's a $(place)")
        self.message_path = self.text("messagePath", "/mnt/message")
        self.sub_path = self.text("subPathExpr", self.text("subPath", "sub/*"))
        self.key = self.text("configMap.key", "settings.yaml")
        self.path = self.text("item.path", "conf/$x y")
        self.volume = self.text("volume.name", "work")
        self.config_map = self.text("configMap.name", "settings")
        self.secret_name = self.text("secret.name", "password")
        self.secret_key = self.text("secret.key", "key")
        self.note_key = self.text("annotation.key", "note")

    def text(self, form: str, usual: str) -> str:
        """The usual text, or a hostile one if this is the form that is to be hostile."""
        return self.draw(TEXTS) if form == self.form else usual

    def some_texts(self, most: int) -> list[str]:
        return [self.draw(TEXTS) for _ in range(self.draw(st.integers(0, most)))]

    def case(self) -> Case:
        main, expected = self.container("container.name", "main", self.has_mounts)
        hook = self.hook(main, expected)
        containers, inits = {main["name"]: expected}, []
        if self.form == "init.name" or self.draw(st.integers(0, 5)) == 0:
            init, of_init = self.container("init.name", "prep", False)
            containers[init["name"]] = of_init
            inits.append(init)
        pod = self.pod(main, inits)
        text = self.request(pod) if self.is_request else self.manifests(pod)
        message = self.note if self.has_mounts else None
        return Case(
            text,
            self.is_request,
            self.form,
            containers,
            hook,
            self.answer,
            message,
            self.may_fail(main),
        )

    def may_fail(self, main: dict[str, Any]) -> bool:
        if self.form in ("command", "hook.command", "emptyDir.sizeLimit"):
            return True  # no such program; less room than a folder itself takes
        if self.form == "workingDir":
            return "\0" in main["workingDir"] or not os.path.isdir(main["workingDir"] or "/")
        paths = [self.mount_path, self.message_path, f"/mnt-{self.sub_path}"]
        return any(no_place(path) for path in paths if not path.startswith("/mnt/"))

    def container(self, form: str, name: str, mounts: bool) -> tuple[dict[str, Any], Expected]:
        entries, env = self.variables()
        args = self.some_texts(3)
        trees = self.trees() if mounts else {}
        spec: dict[str, Any] = {"trees": list(trees)}
        container: dict[str, Any] = {
            "name": self.text(form, name),
            "image": self.text("image", "busybox:1.36"),
            "imagePullPolicy": self.text("imagePullPolicy", "IfNotPresent"),
            "workingDir": self.text("workingDir", self.mount_path if mounts else "/"),
            "env": entries,
            "ports": [{"containerPort": 80, "name": self.text("port.name", "web")}],
            "resources": {
                "requests": {self.text("resource.name", "cpu"): self.text("resource.amount", "1m")}
            },
            "terminationMessagePolicy": self.text("messagePolicy", "File"),
        }
        if mounts:
            spec.update(message=self.note, message_path=absolute(self.message_path))
            container["terminationMessagePath"] = self.message_path
            container["volumeMounts"] = self.volume_mounts()
            if self.form == "subPathExpr":
                entries.append({"name": "SUB", "value": self.sub_path})
                env["SUB"] = self.sub_path
        program, *options = DUMPER
        coded = json.dumps(spec).encode().hex()
        container["command"] = [self.text("command", program), *options, coded]
        container["args"] = args
        cwd = os.path.realpath(absolute(container["workingDir"]).replace("\0", ""))
        expected = Expected(
            [expanded(arg, env) for arg in args],
            {"HOSTNAME": self.host or "pod", **env},
            cwd,
            trees,
        )
        return container, expected

    def variables(self) -> tuple[list[dict[str, str]], dict[str, str]]:
        names = [self.draw(st.sampled_from(ENV_NAMES)) for _ in range(self.draw(st.integers(0, 4)))]
        names += [self.draw(TEXTS)] if self.form == "env.name" else []
        entries, env = [], {}
        for name in names:
            value = self.draw(TEXTS)
            entries.append({"name": name, "value": value})
            env[name] = value if self.is_request else expanded(value, env)
        return entries, env

    def hook(self, main: dict[str, Any], expected: Expected) -> Optional[Expected]:
        """Some main containers have a postStart hook, whose arguments are not expanded."""
        if self.form != "hook.command" and self.draw(st.integers(0, 14)):
            return None
        args = self.some_texts(3)
        coded = json.dumps({"answer": self.answer}).encode().hex()
        program, *options = DUMPER
        command = [self.text("hook.command", program), *options, coded, *args]
        main["lifecycle"] = {"postStart": {"exec": {"command": command}}}
        # It may come too late for a container that ends at once: this one waits for its answer.
        spec = json.loads(bytes.fromhex(main["command"][-1]))
        main["command"][-1] = json.dumps({**spec, "wait": self.answer}).encode().hex()
        return expected._replace(args=args, trees={})

    def trees(self) -> dict[str, Tree]:
        return {
            absolute(self.mount_path): tree_of(self.path, self.content.encode()),
            "/mnt/secret": tree_of("key", self.secret.encode()),
            "/mnt/info": tree_of("note", self.note.encode()),
            "/mnt/work": tree_of(self.sub_path, None),
        }

    def volume_mounts(self) -> list[dict[str, Any]]:
        sub = {"subPath": self.sub_path}
        if self.form == "subPathExpr":
            sub = {"subPathExpr": "$(SUB)"}
        return [
            {"name": "cfg", "mountPath": self.mount_path, "readOnly": True},
            {"name": "sec", "mountPath": "/mnt/secret"},
            {"name": "info", "mountPath": "/mnt/info"},
            {"name": self.volume, "mountPath": "/mnt/work"},
            {"name": self.volume, "mountPath": "/mnt/sub", **sub},
        ]

    def volumes(self) -> list[dict[str, Any]]:
        item = {"key": self.key, "path": self.path}
        field = self.text("fieldPath", f"metadata.annotations['{self.note_key}']")
        empty = {
            "medium": self.text("emptyDir.medium", ""),
            "sizeLimit": self.text("emptyDir.sizeLimit", "1Gi"),
        }
        downward = {"items": [{"path": "note", "fieldRef": {"fieldPath": field}}]}
        return [
            {"name": "cfg", "configMap": {"name": self.config_map, "items": [item]}},
            {
                "name": "sec",
                "secret": {
                    "secretName": self.secret_name,
                    "items": [{"key": self.secret_key, "path": "key"}],
                },
            },
            {"name": "info", "downwardAPI": downward},
            {"name": self.volume, "emptyDir": empty},
        ]

    @property
    def spec(self) -> dict[str, Any]:
        """What a job has no use for, or that only has to be refused when it is malformed."""
        return {
            "restartPolicy": self.text("restartPolicy", "Never") or "Never",
            "hostname": self.host,
            "subdomain": self.text("subdomain", "sub"),
            "nodeName": self.text("nodeName", "node"),
            "serviceAccountName": self.text("serviceAccountName", "default"),
            "schedulerName": self.text("schedulerName", "default-scheduler"),
            "priorityClassName": self.text("priorityClassName", "low"),
            "nodeSelector": {
                self.text("nodeSelector.key", "key"): self.text("nodeSelector.value", "value")
            },
            "tolerations": [
                {
                    name: self.text(f"toleration.{name}", usual)
                    for name, usual in (
                        ("key", "pool.vk.io"),
                        ("operator", "Equal"),
                        ("value", "pool"),
                        ("effect", "NoSchedule"),
                    )
                }
            ],
            "imagePullSecrets": [{"name": self.text("pullSecret.name", "pull")}],
        }

    def pod(self, main: dict[str, Any], inits: list[dict[str, Any]]) -> dict[str, Any]:
        spec = {**self.spec, "containers": [main], "initContainers": inits}
        if self.form.startswith("alias"):
            names = [self.text("alias.name", "db.local")]
            spec["hostAliases"] = [{"ip": self.text("alias.ip", "10.1.2.3"), "hostnames": names}]
        if self.has_mounts:
            spec["volumes"] = self.volumes()
        metadata = {
            "name": self.text("pod.name", "pod"),
            "namespace": self.text("pod.namespace", "team-a"),
            "uid": self.text("pod.uid", self.uid),
            "labels": {self.text("label.key", "app"): self.text("label.value", "hostile")},
            "annotations": {self.note_key: self.note},
            "ownerReferences": [{"name": self.text("owner.name", "owner")}],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def config_map_object(self) -> dict[str, Any]:
        metadata = {"name": self.config_map, "namespace": "team-a"}
        return {"kind": "ConfigMap", "metadata": metadata, "data": {self.key: self.content}}

    def secret_object(self) -> dict[str, Any]:
        data = {self.secret_key: base64.b64encode(self.secret.encode()).decode()}
        metadata = {"name": self.secret_name, "namespace": "team-a"}
        kind = self.text("secret.type", "Opaque")
        return {"kind": "Secret", "metadata": metadata, "type": kind, "data": data}

    def request(self, pod: dict[str, Any]) -> str:
        contents = {"name": "main", "configMaps": [], "secrets": []}
        if self.has_mounts:
            contents["configMaps"] = [self.config_map_object()]
            contents["secrets"] = [self.secret_object()]
        request = {"pod": pod, "container": [contents], "jobScript": self.text("jobScript", "")}
        return json.dumps(request)

    def manifests(self, pod: dict[str, Any]) -> str:
        """As JSON, which is YAML; not escaped, as YAML knows no pairs of surrogates."""
        documents = [pod]
        if self.has_mounts:
            documents += [self.config_map_object(), self.secret_object()]
        return "\n---\n".join(json.dumps(d, ensure_ascii=False) for d in documents)


def cases(folder: Path) -> st.SearchStrategy[Case]:
    """Hostile pods whose hooks may write to ``folder``."""
    return st.composite(lambda draw: Maker(draw, folder).case())()
