"""Run a command inside a machine of a Slurm site.

    python slurm/enter.py PID USER DIRECTORY COMMAND...

PID is the machine's first process, as this machine sees it. Signals that would end a program are
passed on, the exit code is the command's, and the command does not outlive whoever runs this.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Sequence

KINDS = ("user", "uts", "ipc", "net", "pid", "mnt")  # files last: /proc is another one after it
PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT")
USERS = "/run/users"  # where users' processes belong, on machines that have a control group for it
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None, use_errno=True)


def join(pid: int) -> None:
    """Make this process one of the machine's, but for its number: that counts for its children."""
    files = []
    for kind in KINDS:
        theirs, ours = f"/proc/{pid}/ns/{kind}", f"/proc/self/ns/{kind}"
        if os.readlink(theirs) != os.readlink(ours):
            files.append(os.open(theirs, os.O_RDONLY | os.O_CLOEXEC))
    for file in files:
        if libc.setns(file, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")
        os.close(file)


def become(user: str, directory: str, command: Sequence[str]) -> None:
    """Turn into the command; returns only by an error."""
    person = pwd.getpwnam(user)
    if person.pw_uid != 0 and os.path.exists(USERS):
        file = os.open(USERS, os.O_WRONLY | os.O_CLOEXEC)
        os.write(file, b"0")
    if person.pw_uid != 0:
        os.initgroups(user, person.pw_gid)
        os.setresgid(person.pw_gid, person.pw_gid, person.pw_gid)
        os.setresuid(person.pw_uid, person.pw_uid, person.pw_uid)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of the user has taken it back
    os.umask(0o022)
    os.chdir(directory)
    path = "/usr/local/bin:/usr/bin:/bin" + ("" if user == "alice" else ":/usr/sbin:/sbin")
    environment = {
        "HOME": person.pw_dir,
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "PATH": path,
    }
    if os.path.isdir(f"/run/user/{person.pw_uid}"):
        environment["XDG_RUNTIME_DIR"] = f"/run/user/{person.pw_uid}"
    # Python could not look for the command: its own modules are out of reach by now.
    os.execve("/usr/bin/env", ["env", *command], environment)  # noqa: S606 - no shell is what we want


def run(pid: int, user: str, directory: str, command: Sequence[str]) -> int:
    """Run it; returns its exit code, as a shell would give it."""
    join(pid)
    child = os.fork()
    if child == 0:
        try:
            become(user, directory, command)
        except (OSError, KeyError) as error:
            sys.stderr.write(f"{command[0]}: {error}\n")
        os._exit(127)
    for name in PASSED_ON:
        signal.signal(getattr(signal, name), lambda number, _: os.kill(child, number))
    _, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
