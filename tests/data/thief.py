"""A job that looks for the key of the submitter that has started it: THIEF KEY_FILE PID UNIT.

Says what came of each way, and whatever it has found there.
"""

import ctypes
import os
import sys

key, pid, unit = sys.argv[1], int(sys.argv[2]), sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PIDFD_OPEN, PIDFD_GETFD = 16, 434, 438


def tell(way, action):
    try:
        found = repr(action())
    except OSError as error:
        found = error.strerror
    sys.stdout.write(f"{way}: {found}\n")


def read(path):
    def read_it():
        with open(path, "rb") as file:
            return file.read(100_000)

    return read_it


def call(function, *arguments):
    result = function(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def standard_input():
    process = call(libc.syscall, PIDFD_OPEN, pid, 0)
    return os.pread(call(libc.syscall, PIDFD_GETFD, process, 0, 0), 1000, 0)


for name in ("environ", "mem", "maps", "fd/0", "fd/1", "root/" + key, "cwd/x"):
    tell(name, read(f"/proc/{pid}/{name}"))
tell("key", read(key))
tell("chmod", lambda: os.chmod(key, 0o644))
tell("rename", lambda: os.rename(key, key + ".mine"))
tell("fds", lambda: os.listdir(f"/proc/{pid}/fd"))
tell("attach", lambda: call(libc.ptrace, PTRACE_ATTACH, pid, None, None))
tell("getfd", standard_input)
for number in range(10):  # what it has inherited
    tell(f"own {number}", lambda number=number: os.pread(number, 1000, 0))
tell("credentials", lambda: os.listdir(f"/run/credentials/{unit}"))
tell("unit", read(f"/etc/systemd/system/{unit}.d/30-thief.conf"))
