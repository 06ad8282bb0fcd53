#!/bin/bash
# The images of an installed chart, for a bed, which has no registry and no way out: ours, built by Debian's buildah
# from their Dockerfiles; NATS and interLink out of the programs that tests use.
#
#   images.sh NATS_SERVER INTERLINK    prints the folder in which they are, as archives: chain.tar with what a
#                                            release needs, submitters.tar with the submitters
#
# INTERLINK is the folder of its two programs. Ours are built on Debian's Python, under the name of the base that
# Dockerfiles ask for. All of it stays in the cache, and is made anew when something has changed. Only root can do this.
# shellcheck disable=SC2154
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
. "$here/lib/common.sh"
nats_server=$1 interlink=$2
prefix=registry.example.org/interlink
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$repo/templates/__init__.py")

# Raise this when the base below changes.
store=$cache/chart-images-2
base=docker.io/library/python:3.13-slim
export BUILDAH_ISOLATION=chroot BUILDAH_LAYERS=true
engine=(buildah --root "$store/images" --runroot "$store/run")

# What they are made of, in one word.
digest() {
    local programs=("$nats_server" "$interlink/interlink" "$interlink/virtual-kubelet")
    {
        cat "$(readlink -f "$0")" "${programs[@]}" /bin/busybox
        cd "$repo"
        tar -c --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=a+rX --exclude=__pycache__ \
            setup.py setup.cfg README.md LICENSE scripts/images kueue_nats plugin_server submitter templates
    } | sha256sum | cut -c 1-16
}

# A Python as that of Docker Hub's image, as far as ours use it: "python" is there, with pip and venv.
make_base() {
    "${engine[@]}" inspect --type image "$base" >/dev/null 2>&1 && return
    say "building a base image with debootstrap (about two minutes, log: $store/base.log)"
    local root=$store/base file container
    rm -rf "$root"
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv trixie "$root" \
        "$(debian_mirror)" >"$store/base.log" 2>&1 || die "debootstrap could not build a base: see $store/base.log"
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
    ln -s /usr/bin/python3 "$root/usr/local/bin/python"
    # pip's settings and certificates are this machine's.
    for file in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
        if [ -e "$file" ]; then cp -L "$file" "$root$file"; fi
    done
    container=$("${engine[@]}" from scratch)
    "${engine[@]}" copy --quiet "$container" "$root" / >/dev/null
    "${engine[@]}" commit --quiet --rm "$container" "$base" >/dev/null
    rm -rf "$root"
}

# An image with nothing but one program, and what probes call (NATS's own has it from Alpine).
make_from() { # NAME PROGRAM PLACE
    local container
    container=$("${engine[@]}" from scratch)
    "${engine[@]}" copy --quiet "$container" "$2" "$3" >/dev/null
    "${engine[@]}" copy --quiet "$container" /bin/busybox /usr/local/bin/wget >/dev/null
    "${engine[@]}" config --entrypoint "[\"$3\"]" --env PATH=/usr/local/bin "$container"
    "${engine[@]}" commit --quiet --rm "$container" "$1" >/dev/null
}

# One archive, which has each layer once. What an image is called in it is written as containerd reads it.
save() { # FILE IMAGE...
    local layout=$store/layout name
    rm -rf "$layout"
    for name in "${@:2}"; do "${engine[@]}" push --quiet "$name" "oci:$layout:$name"; done
    python3 - "$layout/index.json" <<'PYTHON'
import json, sys
with open(sys.argv[1]) as file:
    index = json.load(file)
for manifest in index["manifests"]:
    names = manifest["annotations"]
    names["io.containerd.image.name"] = names["org.opencontainers.image.ref.name"]
with open(sys.argv[1], "w") as file:
    json.dump(index, file)
PYTHON
    tar -C "$layout" -cf "$1" .
    rm -rf "$layout"
}

make_all() { # FOLDER
    local name
    make_base
    "$repo/scripts/images/build" --engine "${engine[*]}" "$prefix"
    make_from "$prefix/nats:test" "$nats_server" /usr/local/bin/nats-server
    for name in interlink virtual-kubelet; do make_from "$prefix/$name:test" "$interlink/$name" "/$name"; done
    mkdir -p "$1"
    save "$1/chain.tar" "$prefix"/{interlink-nats-plugin,kueue-nats}":$version" \
        "$prefix"/{nats,interlink,virtual-kubelet}:test
    save "$1/submitters.tar" "$prefix/interlink-nats-submitter"{,-condor}":$version"
}

need_packages buildah busybox-static debootstrap
mkdir -p "$store/archives"
exec 8>"$store.lock"
flock 8
folder=$store/archives/$(digest)
if [ ! -e "$folder" ]; then
    # Those of yesterday are of no use to anybody.
    find "$store/archives" -mindepth 1 -maxdepth 1 -mtime +0 -exec rm -rf {} +
    say "making the images of the chart (some minutes when there are none yet, log: $store/build.log)"
    rm -rf "$store/new"
    trap 'say "the images could not be made: see $store/build.log, which ends with"; tail -n 5 "$store/build.log" >&2' EXIT
    make_all "$store/new" >"$store/build.log" 2>&1 8>&-
    trap - EXIT
    mv "$store/new" "$folder"
fi
echo "$folder"
