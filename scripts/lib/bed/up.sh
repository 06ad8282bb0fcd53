# Bringing up a bed, in the order in which its programs need each other. Source the other bed/*.sh first.
# shellcheck shell=bash disable=SC2154

# What keeps this machine from having a bed, in a line.
show_obstacle() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "only root can have a bed"
    elif ! unshare --mount --net --pid --fork true 2>/dev/null; then
        echo "this machine allows no name spaces"
    elif [ ! -e "$(part_folder kubernetes)" ]; then
        # It has to be built, and that may be what is not possible.
        (find_go) 2>&1 | sed 's/^[^:]*: //' || true
    fi
}

# Whatever keeps it from that, nothing is left but the logs.
bring_up() { # KUEUE WITH_NODE TIED SITES INTERLINK INGRESS CHART
    local start part
    for part in debian kubernetes "kueue-$1" ${2:+coredns} ${6:+traefik}; do build_part "$part"; done
    # shellcheck disable=SC2086
    [ -z "$4" ] || build_chain "$5" $4
    [ -z "$7" ] || build_chart
    need_packages curl iproute2 openssl util-linux ${2:+libseccomp2 nftables}
    start=$SECONDS
    lock_bed
    read_facts
    if bed_is_up; then die "the bed \"$name\" is up already: scripts/bed down --name $name"; fi
    take_down
    # shellcheck disable=SC2034
    kueue=$1 with_node=$2 tied=$3 sites=$4 ingress=$6 chart=$7
    # An earlier bed of this name may have had others.
    [ -z "$sites" ] || name_chain "$5"
    # Who has these has an etcd and an API server already.
    # shellcheck disable=SC2034
    assets=${KUBEBUILDER_ASSETS:+$(realpath "$KUBEBUILDER_ASSETS")}
    umask 077
    mkdir -p "$state"/{etc,log,pki,run}
    note kueue with_node assets ingress chart sites interlink venv
    trap give_up EXIT
    trap 'say interrupted; exit 130' INT TERM
    name_folders
    start_machine "${folders[@]}"
    connect
    launch etcd
    make_keys
    launch apiserver
    [ -z "$sites" ] || begin_chain
    [ -z "$with_node" ] || start_containerd
    write_kueue_configuration
    say "waiting for the API server"
    until_ready etcd apiserver
    launch controller-manager
    launch scheduler
    if has_chain; then start_chain; fi
    [ -z "$with_node" ] || launch_node
    [ -z "$ingress" ] || launch_ingress
    start_kueue
    until_ready controller-manager scheduler
    until_true 60 "the default ServiceAccount" controller-manager succeeds kubectl get serviceaccount default
    if [ -n "$with_node" ]; then
        say "waiting for the node"
        until_ready kubelet kube-proxy coredns
        until_true 90 "the node" kubelet node_is_ready
    fi
    [ -z "$ingress" ] || until_ready traefik
    [ -z "$chart" ] || install_chart
    [ -z "$sites" ] || finish_chain
    touch "$state/run/up"
    trap - EXIT
    say "the bed \"$name\" is up after $((SECONDS - start)) s:" \
        "$(enter kube-apiserver --version), Kueue $(kueue_version "$kueue")"
}

give_up() {
    say "the bed \"$name\" did not come up"
    end_machine
    find "$state" -mindepth 1 -maxdepth 1 ! -name log -exec rm -rf {} +
}

# kubectl for this machine: that of the bed.
kubectl() { "$(part_folder kubernetes)/kubectl" "$@"; }

# Tell the API server of objects, in YAML.
apply() {
    kubectl apply --server-side --force-conflicts -f - >"$state/log/apply.log" 2>&1 ||
        die "kubectl apply: $(log_end apply)"
}

start_containerd() {
    write_node_configuration
    launch containerd
    until_ready containerd
    enter ctr --namespace k8s.io images import "$(part_folder debian)/images.tar" >"$state/log/images.log" 2>&1 ||
        die "no images for the node: $(log_end images)"
}

launch_node() {
    launch kubelet
    launch kube-proxy
    dns_objects | apply
    launch coredns
}

launch_ingress() {
    ingress_objects | apply
    launch traefik
}

# Kueue ends when its own kinds are not there yet, and nothing can be created while its webhooks are there
# and it is not.
start_kueue() {
    kueue_objects | apply
    kubectl wait --for=condition=Established --all --timeout=60s customresourcedefinition >"$state/log/apply.log" 2>&1 ||
        die "Kueue's kinds are not served: $(log_end apply)"
    launch kueue
    say "waiting for Kueue"
    until_of_use kueue
}

# A program is ready, and so is what was in its way to those that use it.
until_of_use() {
    until_ready "$1"
    case $1 in
    etcd) has_ended apiserver || until_ready apiserver ;;
    kueue) has_ended apiserver || until_true 60 "Kueue's webhooks" kueue webhooks_answer ;;
    esac
}

webhooks_answer() {
    succeeds kubectl create --dry-run=server -f - <<'OBJECT'
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: bed-looks-for-kueue}
spec: {}
OBJECT
}

node_is_ready() {
    succeeds kubectl wait --for=condition=Ready --timeout=1s "node/$node"
}
