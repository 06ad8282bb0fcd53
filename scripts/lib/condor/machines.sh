#!/bin/bash
# The first process of an HTCondor site, and of each of its machines: it holds name spaces, and what runs in
# them ends with it. scripts/condor-site starts it.
#
#   condor/machines.sh site FD                            the site; gone at once when FD is closed before a line came
#   condor/machines.sh machine NAME ROOT DIR REPOSITORY HOME   one of its machines; HOME is what it has of DIR as
#                                                         its /home, and where: under the path that it has here, too
set -euo pipefail

. "${BASH_SOURCE[0]%/*}/../machines.sh"

# A root of its own: what is in ROOT, with all that is written to it kept in memory, until this machine ends.
make_root() { # NAME ROOT DIR REPOSITORY HOME
    local own=$3/machines/$1 folder
    mkdir -p "$own" "$3/log/$1" "$3/state/$1/lib" "$3/state/$1/spool" "$5"
    mount -t tmpfs -o mode=755 tmpfs "$own"
    mkdir "$own/upper" "$own/work" "$own/root"
    mount -t overlay -o "lowerdir=$2,upperdir=$own/upper,workdir=$own/work" overlay "$own/root"
    cd "$own/root"
    for folder in run tmp var/tmp; do mount -t tmpfs -o mode=1777 tmpfs "$folder"; done
    mkdir -p old interlink-nats ".$5"
    mount --bind "$4" interlink-nats
    mount -o remount,bind,ro interlink-nats
    mount --bind "$5" home
    mount --bind "$5" ".$5"
    mkdir -p ".$3/witness"
    mount --bind "$3/witness" ".$3/witness"
    # What outlives a power cut.
    chown --reference=var/lib/condor "$3/log/$1" "$3/state/$1"/*
    mkdir -p var/log/site
    mount --bind "$3/log" var/log/site
    mount --bind "$3/log/$1" var/log/condor
    mount --bind "$3/state/$1/lib" var/lib/condor
    mkdir -p var/spool/condor
    mount --bind "$3/state/$1/spool" var/spool/condor
    rm -f etc/condor/config.d/*
    cp "$3/etc/$1.conf" etc/condor/config.d/00-site
    cp "$3/etc/hosts" etc/hosts
    mount --bind "$3/etc/ca-certificates.crt" etc/ssl/certs/ca-certificates.crt
    cp "$3/etc/nsswitch.conf" etc/nsswitch.conf
    cp "$3/etc/mapfile" etc/condor/mapfile
    if [ -e "$3/etc/key.pem" ]; then
        install -D -m 644 "$3/etc/ca.pem" etc/condor/tls/ca.pem
        [ "$1" = away ] || install -m 600 "$3/etc/cert.pem" "$3/etc/key.pem" etc/condor/tls
    fi
    # Whoever has it belongs to the site.
    [ "$1" = away ] || install -D -m 600 "$3/etc/POOL" etc/condor/passwords.d/POOL
    mount -t proc proc proc
    mount -t sysfs -o ro sysfs sys
    make_devices
    chmod 755 run
    mkdir -p run/lock/condor run/condor
    chown --reference=var/lib/condor run/lock/condor run/condor
    pivot_root . old
    umount -l /old
    cd /
}

case $1 in
site)
    hostname site
    mount -t proc proc /proc
    be_site "$2"
    ;;
machine)
    hostname "$2"
    make_root "${@:2}"
    be_machine
    ;;
esac
