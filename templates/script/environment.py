"""The variables of a container, as what carries them past its runtime.

Whatever is in the environment of Apptainer, of Podman, or of a site's wrapper around one of them
acts there, on the node and outside of the container: a path to look into, a library to load, a
script that every bash reads first. So nothing of a pod is. Apptainer sources a script when it is in
the container; Podman reads a file of lines, and for what no line can hold, its configuration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from templates.common.errors import PodRejected
from templates.common.quoting import quote_all

_PLAIN, _ODD, _TAKEN = range(3)

# Names that bash keeps for itself, so that it cannot export them as given.
_BASH_KEEPS = (
    *("UID", "EUID", "GID", "GROUPS", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_*", "IFS", "_", "PS4"),
    *("SHLVL", "PWD", "OLDPWD", "POSIXLY_CORRECT", "LC_*", "LANG", "LANGUAGE", "FUNCNAME"),
    *("DIRSTACK", "PIPESTATUS", "RANDOM", "SRANDOM", "SECONDS", "LINENO", "HISTCMD", "EPOCH*"),
)
# Apptainer's shell makes these read-only, unless it finds them in its own environment.
_APPTAINER_INHERITS = frozenset(("UID", "EUID", "GID"))
# And it sets these itself, after all that a pod could say. (The last two would be in its own
# environment: it makes lines of a script of the first, and every bash functions of the second.)
_APPTAINER_KEEPS = re.compile(
    r"(?:(?:APPTAINER|SINGULARITY)_(?:NAME|CONTAINER|ENVIRONMENT)|SING_USER_DEFINED_.*"
    r"|__exported_env__|__apptainer_cmd__|__singularity_cmd__|__script__|key|e|PROMPT_COMMAND"
    r"|(?:APPTAINER|SINGULARITY)ENV_.*[^A-Za-z0-9_].*|BASH_FUNC_.*)",
    re.DOTALL,
).fullmatch
_is_identifier = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch

# Podman reads lines of less than 64 KiB, and neither blanks before a name nor comments.
_LONGEST_LINE = 60_000
_is_no_line = re.compile(r"[\s#]|.*[\r\n]", re.DOTALL).match
_NO_LINES = re.compile(r"^[\s#]|\r", re.MULTILINE)
_special = re.compile(r"[^A-Za-z0-9_]")


class PodmanVariables(NamedTuple):
    """What podman reads a container's variables from."""

    lines: bytes  # for --env-file
    module: bytes  # containers.conf; empty if each variable is a line
    options: list[str]  # that give the module's values their names


@lru_cache(maxsize=4096)
def is_odd(name: str) -> bool:
    """Return whether bash cannot export a variable of this name as it is given."""
    if not name.isascii() or not name.replace("_", "a").isalnum() or name[0].isdigit():
        return True
    return any(fnmatchcase(name, pattern) for pattern in _BASH_KEEPS)


@lru_cache(maxsize=4096)
def _kind_for_apptainer(name: str) -> int:
    if _APPTAINER_KEEPS(name):
        return _TAKEN
    return _PLAIN if _is_identifier(name) and name not in _APPTAINER_INHERITS else _ODD


def apptainer_script(env: Mapping[str, str], runtime: str, field: str) -> tuple[str, list[str]]:
    """Return the script that exports the variables, and entries for Apptainer's own environment.

    These are what no shell can export: names that are none, which nobody else reads either, and
    empty values that keep Apptainer's shell from making the name read-only.
    """
    entries, odd = env, []
    if any(map(_kind_for_apptainer, env)):
        kinds = {name: _kind_for_apptainer(name) for name in env}
        taken = [name for name, kind in kinds.items() if kind == _TAKEN]
        if taken:
            raise PodRejected(
                field, f"{runtime} keeps {taken[0][:80]!r} for itself: give it another name"
            )
        odd = [
            f"{name}=" if name in _APPTAINER_INHERITS else f"{name}={env[name]}"
            for name, kind in kinds.items()
            if kind == _ODD
        ]
        entries = {name: env[name] for name in env if _is_identifier(name)}
    if entries.get("LD_LIBRARY_PATH"):  # where it puts the libraries of --nv
        libraries = f"{entries['LD_LIBRARY_PATH']}:/.singularity.d/libs"
        entries = {**entries, "LD_LIBRARY_PATH": libraries}
    text = quote_all(list(map("=".join, entries.items())), "\nexport ")
    # Even in quotes its shell drops a carriage return from the end of a line, and ends at U+0080.
    return f"export {text}\n".replace("\r", "'$'\\r''").replace("\x80", "'$'\\u0080''"), odd


def podman_variables(env: Mapping[str, str]) -> PodmanVariables:
    """Return the variables as podman can read them: lines, or texts in its configuration."""
    entries = list(map("=".join, env.items()))
    text = "\n".join(entries)
    are_lines = len(text) < _LONGEST_LINE // 4 and text.count("\n") == len(entries) - 1
    odd: list[str] = []
    if not are_lines or _NO_LINES.search(text):
        odd = [name for name, entry in zip(env, entries) if not _is_line(entry)]
    if not odd:
        return PodmanVariables(f"{text}\n".encode(), b"", [])
    lines = [entry for entry in entries if _is_line(entry)]
    prefix = "INTERLINK_VALUE_"
    while any(name.startswith(prefix) for name in env):
        prefix += "_"
    values, options = [], []
    for index, name in enumerate(odd):
        # JSON's way to write a text is TOML's, but for this one character.
        value = json.dumps(f"{prefix}{index}={env[name]}", ensure_ascii=False)
        values.append(value.replace("\x7f", "\\u007f"))
        # In quotes, or podman looks for words in the value, in a time that grows with its square.
        options.append(f'--env-merge={_special.sub(_escape, name)}="${{{prefix}{index}}}"')
    options += [f"--unsetenv={prefix}{index}" for index in range(len(odd))]
    module = f"[containers]\nenv = [{', '.join(values)}, {{append=true}}]\n"
    return PodmanVariables(
        "".join(f"{line}\n" for line in lines).encode(), module.encode(), options
    )


def _is_line(entry: str) -> bool:
    return not _is_no_line(entry) and len(entry.encode()) < _LONGEST_LINE


def _escape(match: re.Match[str]) -> str:
    return f"\\{match[0]}"
