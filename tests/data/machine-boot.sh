#!/bin/bash
# Boots tests/machine.py: called as process 1 of its namespaces, in the folder that becomes its root.
set -eu
root=$PWD
mount --rbind . "$root"
cd "$root"
mount -t proc -o nosuid,nodev,noexec proc proc
for name in sys sysrq-trigger irq bus fs; do # they are the whole kernel's
    [ -e "proc/$name" ] || continue
    mount --bind "proc/$name" "proc/$name"
    mount -o remount,bind,ro "proc/$name"
done
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for node in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "dev/${node%:*}" c 1 "${node#*:}"
done
mknod -m 666 dev/tty c 5 0
for link in fd:/proc/self/fd stdin:fd/0 stdout:fd/1 stderr:fd/2 ptmx:pts/ptmx; do
    ln -s "${link#*:}" "dev/${link%%:*}"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mkdir .old
pivot_root . .old
umount --lazy /.old
cd /
hostname machine
ip link set lo up

# Without the rights to what no namespace keeps to itself: clock, modules, memory, the kernel's log.
rights=-sys_time,-sys_module,-sys_rawio,-sys_boot,-syslog,-wake_alarm,-audit_control
exec env -i container=interlink-tests PATH="$PATH" setpriv --bounding-set="$rights" /lib/systemd/systemd \
    --system --unit=sysinit.target --log-target=journal --show-status=no
