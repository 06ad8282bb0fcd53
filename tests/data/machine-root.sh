#!/bin/bash
# The root of tests/machine.py: this machine's, under a layer in memory, with the submitter installed. Called in a
# mount namespace of its own, still on this machine's network, which pip needs.
set -eu
folder=$1 repo=$2 source=$3 python=$4 cgroup=$5 user=$6 boot=$7

mount -t tmpfs -o mode=755 tmpfs "$folder"
mkdir "$folder"/root "$folder"/upper "$folder"/work
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
cd "$folder/root"
mkdir -p ".$source"
mount --bind "$repo" ".$source"
mount -o remount,bind,ro ".$source"
cp "$boot" boot.sh
if [ ! -e ".$python/bin" ]; then # it is on a file system of its own
    mkdir -p ".$python"
    mount --rbind "$python" ".$python"
fi
place=$python # the service's user has to reach it
while [ "$place" != / ]; do
    chmod o+x ".$place"
    place=$(dirname "$place")
done
: >etc/fstab
echo machine >etc/hostname

mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs run
chroot . useradd --system --create-home "$user"
chroot . env -u PYTHONPATH "$source/scripts/install-submitter" --user "$user" --python "$python/bin/python3"
umount proc run
umount --lazy dev

mkdir "$cgroup"
echo $$ >"$cgroup/cgroup.procs"
exec unshare --mount --propagation private --pid --fork --kill-child --uts --ipc --net --cgroup bash boot.sh
