#!/bin/bash
# How each part of a bed is made. scripts/bed calls it, in a folder that stays when it is broken off.
#
#   bed/make.sh PART DRAFT GO    what the part consists of is in DRAFT/out when this has succeeded
#
# Go programs come from the module proxy, as Go's settings name it. What Go fetches and compiles on the way
# is kept in DRAFT only.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
. "$here/lib/common.sh"
. "$here/lib/bed/parts.sh"

# shellcheck disable=SC2154
apt_lock=$cache/apt.lock
part=$1 draft=$2 go=$3
version=$(part_version "$part")
out=$draft/out
export CGO_ENABLED=0 GOTOOLCHAIN=local GOWORK=off
export GOMODCACHE=$draft/modules GOCACHE=$draft/compiled
export GOFLAGS=-buildvcs=false

# Download a module, and print where one of its parts is: Dir or GoMod.
module() { # MODULE@VERSION PART
    local answer
    answer=$("$go" mod download -json "$1") || { printf '%s\n' "$answer" >&2; return 1; }
    sed -n "s/^[[:space:]]*\"$2\": \"\(.*\)\",\{0,1\}\$/\1/p" <<<"$answer"
}

# Build programs of a module as its makers do: in a copy of their module, whose go.mod (with what it
# replaces) and go.sum then hold. "go install MODULE@VERSION" would refuse it.
build_in_copy() { # MODULE@VERSION LINKER_FLAGS PACKAGE...
    copy_module "$1"
    "$go" build -trimpath -ldflags "-s -w $2" -o "$out/" "${@:3}"
}

# Go to a copy of a module that can be changed.
copy_module() { # MODULE@VERSION
    local dir
    cd /
    dir=$(module "$1" Dir)
    rm -rf "$draft/source"
    cp -r "$dir" "$draft/source"
    chmod -R u+w "$draft/source"
    cd "$draft/source"
}

# Kubernetes replaces its libraries by folders that its module does not have. They are published, as
# v0.X.Y for Kubernetes 1.X.Y: a module of our own asks for these, and for all else that go.mod names.
make_kubernetes() {
    local module=k8s.io/kubernetes name flags="-s -w" packages=() source package
    local minor=${version#1.}
    cd /
    source=$(module "$module@v$version" Dir)
    mkdir -p "$draft/module"
    cd "$draft/module"
    {
        echo "module interlink-nats.test/bed"
        awk -v libraries="v0.$minor" '
            $1 == "module" { next }
            $1 == "replace" && $2 == "(" { skipping = 1 }
            !skipping && $1 != "replace" {
                for (i = 1; i < NF; i++) if ($i ~ /^k8s\.io\// && $(i + 1) == "v0.0.0") $(i + 1) = libraries
                print
            }
            $1 == ")" { skipping = 0 }' "$source/go.mod"
        echo "require $module v$version"
    } >go.mod
    cp "$source/go.sum" go.sum
    chmod u+w go.sum
    echo "package bed" >doc.go
    # Clients look at the version that a server says it has.
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
        flags+=" -X $package.gitTreeState=clean"
    done
    for name in kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy; do
        packages+=("$module/cmd/$name")
    done
    "$go" build -mod=mod -trimpath -ldflags "$flags" -o "$out/" "${packages[@]}"
}

make_coredns() {
    build_in_copy "github.com/coredns/coredns@v$version" "" .
}

# With the objects of its own installation, but for what runs it inside of a cluster. The CA that its
# webhooks are believed by is another one in each bed.
make_kueue() {
    local variable=sigs.k8s.io/kueue/pkg/version.GitVersion
    build_in_copy "sigs.k8s.io/kueue@v$version" "-X $variable=v$version" ./cmd/kueue
    "$(part_folder kubernetes)/kubectl" kustomize "$draft/source/config/default" >"$draft/objects.yaml"
    awk 'BEGIN { RS = "\n---\n" }
        /(^|\n)kind: (Namespace|CustomResourceDefinition|ServiceAccount|(Cluster)?Role(Binding)?)(\n|$)/ ||
        /(^|\n)kind: (Mutating|Validating)WebhookConfiguration(\n|$)/ { print "---"; print }' "$draft/objects.yaml" |
        sed 's/^\( *\)clientConfig:$/&\n\1  caBundle: @CA@/' >"$out/objects.yaml"
}

# interLink's API server and virtual kubelet. This is the newest version that the module proxy serves, under
# the name of its commit. Its virtual kubelet never starts to watch ConfigMaps and Secrets, so that a pod
# with a variable from one would wait for ever: two lines mend that, as later versions have it.
make_interlink() {
    local package=github.com/interlink-hq/interlink main=cmd/virtual-kubelet/main.go kind
    copy_module "$package@v0.0.0-20250722085031-9ed14a4e89d5"
    for kind in Secrets ConfigMaps; do
        sed -i "s/^\tgo scmInformerFactory\.Start(stopper)\$/\tscmInformerFactory.Core().V1().$kind().Informer()\n&/" "$main"
    done
    [ "$(grep -c 'scmInformerFactory.Core().V1().*().Informer()$' "$main")" = 2 ] || die "$main is not what it was"
    "$go" build -trimpath -ldflags "-s -w -X $package/pkg/virtualkubelet.KubeletVersion=$version" -o "$out/" \
        ./cmd/interlink ./cmd/virtual-kubelet
}

make_helm() {
    build_in_copy "helm.sh/helm/v3@v$version" "-X helm.sh/helm/v3/internal/version.version=v$version" ./cmd/helm
}

make_oauth2-proxy() {
    local package=github.com/oauth2-proxy/oauth2-proxy/v7
    build_in_copy "$package@v$version" "-X $package/pkg/version.VERSION=v$version" .
}

make_traefik() {
    local package=github.com/traefik/traefik/v3
    build_in_copy "$package@v$version" "-X $package/pkg/version.Version=v$version" ./cmd/traefik
}

# Its kinds only: its programs are modules of their own, which are not published.
make_cert-manager() {
    copy_module "github.com/cert-manager/cert-manager@v$version"
    sed -s '1s/^/---\n/' deploy/crds/*.yaml >"$out/kinds.yaml"
}

# Of the Prometheus operator, its kind ServiceMonitor.
make_prometheus-operator() {
    copy_module "github.com/prometheus-operator/prometheus-operator@v$version"
    cp example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml "$out/kinds.yaml"
}

# Programs of Debian's, taken out of their packages: installed, etcd, containerd and Prometheus would start as
# services of this machine, and containerd drives out another one that may be here.
unpack() { # PACKAGE...
    mkdir -p "$draft/packages" "$draft/tree"
    cd "$draft/packages"
    {
        flock 7
        apt-get -q download "$@" || { apt-get -q update && apt-get -q download "$@"; }
    } 7>"$apt_lock"
    local package
    for package in *.deb; do
        dpkg-deb -x "$package" "$draft/tree"
    done
}

make_prometheus() {
    unpack prometheus
    cp "$draft/tree/usr/bin/prometheus" "$out/"
}

make_debian() {
    unpack etcd-server containerd runc containernetworking-plugins busybox-static
    mkdir -p "$out/bin" "$out/cni"
    cp "$draft"/tree/usr/bin/{etcd,containerd,containerd-shim-runc-v2,ctr} "$draft"/tree/usr/sbin/runc \
        "$draft"/tree/bin/busybox "$out/bin/"
    cp "$draft"/tree/usr/lib/cni/{ptp,host-local,loopback,portmap} "$out/cni/"
    make_images
}

# The images that the node has from the beginning, as one archive of the form that "docker save" writes:
# busybox under the name that pods use, and what holds a pod's name spaces.
make_images() {
    local tree=$draft/image name layer
    rm -rf "$tree" "$draft/archive"
    mkdir -p "$tree"/{bin,dev,etc,proc,root,sys,tmp,usr/bin,var/tmp} "$draft/archive"
    chmod 1777 "$tree/tmp" "$tree/var/tmp"
    cp "$out/bin/busybox" "$tree/bin/"
    for name in $("$out/bin/busybox" --list); do
        [ "$name" = busybox ] || ln -s busybox "$tree/bin/$name"
    done
    ln -s /bin/env "$tree/usr/bin/env"
    printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$tree/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
    cd "$draft/archive"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$tree" -cf layer.tar .
    layer=$(sha256sum layer.tar | cut -d ' ' -f 1)
    image_config "$layer" '["sh"]' >busybox.json
    image_config "$layer" '["sleep","2147483647"]' >pause.json
    cat >manifest.json <<'MANIFEST'
[{"Config":"busybox.json","RepoTags":["docker.io/library/busybox:1.36"],"Layers":["layer.tar"]},
 {"Config":"pause.json","RepoTags":["docker.io/interlink-nats/pause:1"],"Layers":["layer.tar"]}]
MANIFEST
    tar -cf "$out/images.tar" manifest.json busybox.json pause.json layer.tar
}

image_config() { # LAYER COMMAND
    printf '{"architecture":"%s","os":"linux","config":{"Cmd":%s,"Env":["PATH=/bin:/usr/bin"]},' \
        "$(dpkg --print-architecture)" "$2"
    printf '"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}\n' "$1"
}

# What an earlier run has fetched and compiled serves again; what it has put out may be half of a file.
rm -rf "$out"
mkdir -p "$out"
"make_${part%-0.*}"
# Go write-protects the modules that it keeps.
[ ! -d "$draft/modules" ] || chmod -R u+w "$draft/modules"
