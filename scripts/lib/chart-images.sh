#!/bin/bash
# The images of an installed chart, for a bed, which has no registry and no way out: ours, built by Debian's buildah
# from their Dockerfiles; NATS and interLink out of the programs that tests use.
#
#   chart-images.sh FOLDER NATS_SERVER    one archive for each image is in FOLDER when this has succeeded
#
# Ours are built on Debian's Python, under the name of the base that Dockerfiles ask for. It stays in the cache, and
# so do the layers of what has not changed. Only root can do this.
# shellcheck disable=SC2154
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/lib/common.sh"
. "$here/lib/bed_parts.sh"
folder=$1 nats_server=$2
prefix=registry.example.org/interlink
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$repo/templates/__init__.py")

# Raise this when the base below changes.
store=$cache/chart-images-1
base=docker.io/library/python:3.13-slim
export BUILDAH_ISOLATION=chroot
engine=(buildah --root "$store/images" --runroot "$store/run" --storage-driver vfs)

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

# An image with nothing but one program.
make_from() { # NAME PROGRAM PLACE
    local container
    container=$("${engine[@]}" from scratch)
    "${engine[@]}" copy --quiet "$container" "$2" "$3" >/dev/null
    "${engine[@]}" config --entrypoint "[\"$3\"]" --env PATH=/usr/local/bin "$container"
    "${engine[@]}" commit --quiet --rm "$container" "$1" >/dev/null
}

save() { # NAME
    local file=$folder/${1##*/}
    "${engine[@]}" push --quiet "$1" "docker-archive:${file//:/-}.tar:$1"
}

mkdir -p "$store" "$folder"
exec 8>"$store.lock"
flock 8
make_base
"$repo/scripts/images/build" --engine "${engine[*]}" "$prefix"
for name in interlink-nats-plugin interlink-nats-submitter{,-condor} kueue-nats; do save "$prefix/$name:$version"; done
make_from "$prefix/nats:test" "$nats_server" /usr/local/bin/nats-server
make_from "$prefix/interlink:test" "$(part_folder interlink)/interlink" /interlink
make_from "$prefix/virtual-kubelet:test" "$(part_folder interlink)/virtual-kubelet" /vk
for name in nats interlink virtual-kubelet; do save "$prefix/$name:test"; done
