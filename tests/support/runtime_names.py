"""The names of variables that container runtimes, the loader and shells read.

    python3 -m tests.support.runtime_names "$(scripts/site-root path)" >tests/data/runtime_names.txt

writes the list that the tests take, from the programs in the site root: whatever in them looks like
such a name, each option of Apptainer as the variable that sets it, and what their pages document.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LIST = REPOSITORY / "tests" / "data" / "runtime_names.txt"

_PROGRAMS = ("apptainer", "podman", "conmon", "crun", "bash")
_LIBRARIES = ("ld-linux-x86-64.so.2", "libc.so.6", "apptainer/bin/starter")
_FAMILIES = re.compile(
    rb"_?(?:APPTAINER|SINGULARITY|PODMAN|CONTAINERS?|BUILDAH|STORAGE|REGISTRY|REGISTRIES|DOCKER"
    rb"|CONMON|OCI|LIBPOD|CRUN|LISTEN|NOTIFY|DBUS|XDG|LD|MALLOC|GLIBC|GCONV|RES|BASH|COMP|HIST"
    rb"|LC|SSL|SSH|SQLITE|NETAVARK)_[A-Z]{2}[A-Z0-9_]{0,30}(?![A-Za-z0-9])"
)
# The rest of ld.so(8), environ(7), bash(1), podman(1), apptainer's guide, Go's runtime and perlrun.
_DOCUMENTED = """
BASH_ENV BASH_FUNC_x BASHOPTS CDPATH COLUMNS DIRSTACK EDITOR EMACS ENV EUID EXECIGNORE FCEDIT
FIGNORE FUNCNEST GID GLOBIGNORE GMON_OUT_PREFIX GODEBUG GOGC GOMAXPROCS GOMEMLIMIT GOTRACEBACK
GROUPS HOME HOSTALIASES HOSTFILE HOSTNAME HTTPS_PROXY HTTP_PROXY IFS IGNOREEOF INPUTRC
INSIDE_EMACS LANG LANGUAGE LINES LOCALDOMAIN LOCPATH LOGNAME MAIL MAILCHECK MAILPATH NIS_PATH
NLSPATH NO_PROXY OLDPWD OPTERR OPTIND PAGER PATH PERL5DB PERL5LIB PERL5OPT PERLIO PERLLIB
PERL_SIGNALS POSIXLY_CORRECT PPID PROMPT_COMMAND PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 PWD SHELL
SHELLOPTS SHLVL TEMPDIR TERM TERMCAP TERMINFO TEXTDOMAIN TEXTDOMAINDIR TMOUT TMP TMPDIR TZ TZDIR
UID USER all_proxy auto_resume container histchars http_proxy https_proxy no_proxy
APPTAINERENV_LD_PRELOAD SINGULARITYENV_LD_PRELOAD APPTAINER_BIND APPTAINER_BINDPATH
"""
_OPTION = re.compile(r"--([a-z0-9][a-z0-9-]+)")


def names_in(root: Path) -> set[str]:
    """Return the names that the programs below a root read, as far as their bytes tell."""
    files = [root / "usr/bin" / name for name in _PROGRAMS]
    files += [root / "usr/lib/x86_64-linux-gnu" / name for name in _LIBRARIES]
    found = {name for file in files for name in _FAMILIES.findall(file.read_bytes())}
    names = {name.decode() for name in found} | set(_DOCUMENTED.split())
    for command in ("exec", "run", "pull", "instance start"):
        call = [str(REPOSITORY / "scripts/site-root"), "run", "apptainer", *command.split()]
        told = subprocess.run([*call, "--help"], check=True, capture_output=True, text=True)
        for option in _OPTION.findall(told.stdout):
            variable = option.upper().replace("-", "_")
            names |= {f"APPTAINER_{variable}", f"SINGULARITY_{variable}"}
    return names


def names() -> list[str]:
    """Return the list that is kept with the tests."""
    return LIST.read_text().split()


if __name__ == "__main__":
    sys.stdout.write("".join(f"{name}\n" for name in sorted(names_in(Path(sys.argv[1])))))
