#!/bin/bash
# The first process of a bed: it holds name spaces, and all that runs in them ends with it. scripts/bed
# starts it.
#
#   bed/machine.sh STATE CGROUP FOLDER...    STATE is written, the FOLDERs are read, under their own names
#
# It writes STATE/run/machine when it is ready, and is gone at once when its input ends before a line came.
# After the line "tied" it is gone as soon as file 3 ends.
set -euo pipefail
state=$1 cgroup=$2
shift 2

# A root of its own in memory, with the programs of this machine and what the bed brings along. Nothing
# that is written to /etc, /run or /var in there is seen outside, or stays.
make_root() { # FOLDER...
    local name folder
    mkdir -p "$state/root"
    mount -t tmpfs -o mode=755 tmpfs "$state/root"
    cd "$state/root"
    for name in bin sbin lib lib32 lib64 libx32 usr; do
        if [ -L "/$name" ]; then
            cp -P "/$name" "$name"
        elif [ -d "/$name" ]; then
            mkdir "$name"
            mount --rbind "/$name" "$name"
            mount -o remount,bind,ro "$name"
        fi
    done
    mkdir -p dev etc old proc root run/lock sys tmp var/lib var/log var/tmp
    chmod 1777 tmp var/tmp
    ln -s /run var/run
    make_etc
    for folder; do
        mkdir -p ".$folder"
        mount --bind "$folder" ".$folder"
        mount -o remount,bind,ro ".$folder"
    done
    mkdir -p ".$state"
    mount --bind "$state" ".$state"
    mount --rbind /dev dev
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount --rbind /sys/fs/cgroup sys/fs/cgroup
    hide_settings
    pivot_root . old
    umount -l /old
    rmdir /old
    mount --make-rshared /
    cd /
}

make_etc() {
    local file
    for file in alternatives group ld.so.cache localtime nsswitch.conf os-release passwd protocols services; do
        if [ -e "/etc/$file" ]; then cp -a "/etc/$file" etc/; fi
    done
    printf '127.0.0.1 localhost\n' >etc/hosts
    : >etc/resolv.conf
    tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
}

# The kubelet sees to it that these have such values, and they are the same for all of this machine: let it
# believe that they have them.
hide_settings() {
    local name value
    mkdir run/settings
    while read -r name value; do
        [ -e "proc/sys/$name" ] || continue
        echo "$value" >"run/settings/${name##*/}"
        mount --bind "run/settings/${name##*/}" "proc/sys/$name"
    done <<'SETTINGS'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
SETTINGS
}

# Where the kubelet puts the control groups of its pods: below one folder of the bed's, in each hierarchy.
make_cgroups() {
    local folder
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        for folder in $(cat /sys/fs/cgroup/cgroup.controllers); do
            echo "+$folder" >/sys/fs/cgroup/cgroup.subtree_control || true
        done
        mkdir -p "/sys/fs/cgroup/$cgroup"
        return
    fi
    for folder in /sys/fs/cgroup/*/; do
        [ ! -e "$folder/cgroup.procs" ] || mkdir -p "$folder/$cgroup"
    done
}

hostname node1
make_root "$@"
make_cgroups
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
echo ready >"$state/run/machine"
read -r word || exit 1
# Whatever loses its parent is waited for here.
trap : TERM INT HUP
if [ "$word" = tied ]; then
    cat <&3 >/dev/null &
    held=$!
    exec 3<&- </dev/null
    while kill -0 "$held" 2>/dev/null; do wait "$held" || true; done
    exit
fi
exec </dev/null 3<&-
while :; do sleep 1000000 & wait $! || true; done
