#!/bin/bash
# The first process of a Slurm site, and of each of its machines: it holds name spaces, and what runs in
# them ends with it. scripts/slurm-site starts it.
#
#   slurm/machines.sh site ROOT DIR REPOSITORY FD   the site; gone at once when FD is closed before a line came
#   slurm/machines.sh machine NAME DIR [GROUP]      one of its machines, inside of the site; with a control group
#                                                   of that name for podman
set -euo pipefail

. "${BASH_SOURCE[0]%/*}/../machines.sh"

# A root of its own: what is in ROOT, read only, with what belongs to this site from DIR.
make_root() { # ROOT DIR REPOSITORY
    local entry name
    mkdir -p "$2/root"
    mount -t tmpfs -o mode=755 tmpfs "$2/root"
    cd "$2/root"
    for entry in "$1"/*; do
        name=${entry##*/}
        case $name in
        dev | home | proc | root | run | srv | sys | tmp) mkdir "$name" ;;
        *)
            if [ -L "$entry" ]; then
                cp -P "$entry" "$name"
            elif [ -d "$entry" ]; then
                mkdir "$name"
                mount --bind "$entry" "$name"
                mount -o remount,bind,ro "$name"
            fi ;;
        esac
    done
    for name in images registry; do
        mkdir -p "srv/$name"
        mount --bind "$1/srv/$name" "srv/$name"
        mount -o remount,bind,ro "srv/$name"
    done
    mkdir -p old interlink-nats
    mount --bind "$3" interlink-nats
    mount -o remount,bind,ro interlink-nats
    mount --bind "$2/home" home
    mount --bind "$2/etc" etc/slurm
    mount --bind "$2/etc/hosts" etc/hosts
    mount --bind "$2/etc/ca-certificates.crt" etc/ssl/certs/ca-certificates.crt
    mount --bind "$2/log" var/log/slurm
    mount --bind "$2/spool" var/spool/slurm
    mount --bind "$2/database" var/lib/mysql
    mount -t proc proc proc
    make_devices gpu0 1 3 gpu1 1 3  # GPUs that are none
    pivot_root . old
    umount -l /old
    cd /
}

# Where an administrator installs things: all of it as it was, and writable.
make_writable() {
    local folder name
    mkdir -p /run/admin/mounted
    # On a disk, where home directories are.
    mkdir -p /home/.interlink
    mount --bind /home/.interlink /var/lib/interlink
    for name in slurm hosts ssl/certs/ca-certificates.crt; do
        if [ -d "/etc/$name" ]; then mkdir -p "/run/admin/mounted/$name"
        else
            [ "$name" = "${name##*/}" ] || mkdir -p "/run/admin/mounted/${name%/*}"
            : >"/run/admin/mounted/$name"
        fi
        mount --bind "/etc/$name" "/run/admin/mounted/$name"
    done
    for folder in etc opt; do
        mkdir -p "/run/admin/$folder/upper" "/run/admin/$folder/work"
        mount -t overlay -o "lowerdir=/$folder,upperdir=/run/admin/$folder/upper,workdir=/run/admin/$folder/work" \
            overlay "/$folder"
    done
    for name in slurm hosts ssl/certs/ca-certificates.crt; do mount --bind "/run/admin/mounted/$name" "/etc/$name"; done
}

# What podman wants for a user, as systemd gives it elsewhere: a control group, a folder for what runs, a network
# device; and mounts that containers share.
make_rootless() { # GROUP
    mkdir -p /dev/net
    [ -e /dev/net/tun ] || mknod -m 666 /dev/net/tun c 10 200
    mount -t cgroup2 none /sys/fs/cgroup
    mkdir -p "/sys/fs/cgroup/$1"
    chown alice:alice "/sys/fs/cgroup/$1" "/sys/fs/cgroup/$1"/cgroup.{procs,subtree_control,threads}
    # slurm/enter.py puts there who comes.
    ln -s "/sys/fs/cgroup/$1/cgroup.procs" /run/users
    mkdir -m 700 /run/user/1000
    chown alice:alice /run/user/1000
    mount --make-rshared /
}

case $1 in
site)
    hostname site
    make_root "$2" "$3" "$4"
    be_site "$5"
    ;;
machine)
    hostname "$2"
    for folder in /run /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$folder"; done
    mount -t sysfs -o ro sysfs /sys
    chmod 755 /run
    mkdir -p /run/lock /run/munge /run/slurm /run/mysqld /run/user
    chown munge /run/munge
    chown slurm /run/slurm
    chown mysql /run/mysqld
    # The shared files are also where this machine (the one that the site runs on) has them.
    mkdir -p "$3/home"
    mount --bind /home "$3/home"
    [ "$2" != login ] || make_writable
    [ -z "${4:-}" ] || make_rootless "$4"
    be_machine
    ;;
esac
