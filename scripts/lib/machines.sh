# What the machines of a Slurm site and of an HTCondor site have alike. Source it.
# shellcheck shell=bash

# Whatever loses its parent is waited for here.
hold() {
    trap : TERM INT HUP
    while :; do sleep 1000000 & wait $! || true; done
}

# Only what every machine has, and what else is named: below the folder that this is.
make_devices() { # [NAME MAJOR MINOR]...
    mount -t tmpfs -o mode=755 tmpfs dev
    set -- null 1 3 zero 1 5 full 1 7 random 1 8 urandom 1 9 tty 5 0 fuse 10 229 "$@"
    while [ $# -gt 0 ]; do
        mknod -m 666 "dev/$1" c "$2" "$3"
        shift 3
    done
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts dev/pts
    mount -t tmpfs -o mode=1777 tmpfs dev/shm
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    ln -s /proc/self/fd/0 dev/stdin
    ln -s /proc/self/fd/1 dev/stdout
    ln -s /proc/self/fd/2 dev/stderr
}

# The site itself: its machines' network; gone at once when FD is closed before a line came.
be_site() { # FD
    ip link set lo up
    ip link add site type bridge
    ip link set site up
    echo ready
    exec >&2
    read -r _ <&"$1" || exit 1
    eval "exec $1<&-"
    hold
}

# One of its machines.
be_machine() {
    ip link set lo up
    echo ready
    exec >&2
    hold
}
