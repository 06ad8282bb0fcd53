# The programs of a bed: how each is started, how to tell that it does its work, how it ends.
# Source bed/state.sh first.
# shellcheck shell=bash disable=SC2054,SC2154

control_programs=(etcd apiserver controller-manager scheduler kueue)
node_programs=(containerd kubelet kube-proxy coredns)

# Where the bed finds what it starts, here as inside.
name_folders() {
    local part
    folders=()
    for part in debian kubernetes "kueue-$kueue" ${with_node:+coredns} ${ingress:+traefik}; do
        folders+=("$(part_folder "$part")")
    done
    inner_path=${folders[0]}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    inner_path=$(IFS=:; echo "${folders[*]:1}"):$inner_path
    if has_chain; then
        mapfile -t -O "${#folders[@]}" folders < <(chain_folders)
        inner_path=$interlink:$inner_path
    fi
    if [ -n "$assets" ]; then
        folders+=("$assets")
        inner_path=$assets:$inner_path
    fi
}

# Whether the chain's programs are the bed's own, and not in pods of the chart.
has_chain() { [ -n "$sites" ] && [ -z "$chart" ]; }

programs() {
    local chain=()
    if has_chain; then chain=("${chain_programs[@]}"); fi
    echo "${control_programs[@]}" ${with_node:+"${node_programs[@]}"} ${ingress:+traefik} "${chain[@]}"
}

need_program() {
    case " $(programs) " in
    *" $1 "*) ;;
    *) die "no program of the bed is called \"$1\": $(programs)" ;;
    esac
}

# Set $command to what starts a program, and $asked to what tells whether it is ready.
define() {
    local etc=$state/etc pki=$state/pki
    case $1 in
    etcd)
        # Its files are in memory: they outlive the program, and an fsync costs nothing.
        command=(etcd --data-dir=/var/lib/etcd --listen-client-urls=http://127.0.0.1:2379
            --advertise-client-urls=http://127.0.0.1:2379 --listen-peer-urls=http://127.0.0.1:2380
            --initial-advertise-peer-urls=http://127.0.0.1:2380 --initial-cluster=default=http://127.0.0.1:2380)
        asked=http://127.0.0.1:2379/health ;;
    apiserver)
        command=(kube-apiserver --etcd-servers=http://127.0.0.1:2379 --advertise-address="$address"
            --service-cluster-ip-range="$services" --allow-privileged=true
            --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction
            # Services whose programs are no pods are found by their endpoints, also without kube-proxy.
            --enable-aggregator-routing=true
            --client-ca-file="$pki/ca.crt"
            --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key"
            --kubelet-client-certificate="$pki/apiserver-client.crt" --kubelet-client-key="$pki/apiserver-client.key"
            --kubelet-preferred-address-types=InternalIP
            --service-account-issuer=https://kubernetes.default.svc.cluster.local
            --service-account-key-file="$pki/tokens.pub" --service-account-signing-key-file="$pki/tokens.key")
        asked=https://127.0.0.1:6443/readyz ;;
    controller-manager)
        command=(kube-controller-manager --kubeconfig="$etc/controller-manager.kubeconfig" --leader-elect=false
            --cert-dir=/run/controller-manager --controllers='*' --use-service-account-credentials=true
            --kube-api-qps=100 --kube-api-burst=200
            --service-account-private-key-file="$pki/tokens.key" --root-ca-file="$pki/ca.crt"
            --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key")
        asked=https://127.0.0.1:10257/healthz ;;
    scheduler)
        command=(kube-scheduler --kubeconfig="$etc/scheduler.kubeconfig" --leader-elect=false --cert-dir=/run/scheduler)
        asked=https://127.0.0.1:10259/healthz ;;
    kueue)
        command=(kueue --config="$etc/kueue.yaml" --kubeconfig="$etc/kueue.kubeconfig" --zap-log-level=2)
        asked=http://127.0.0.1:8081/readyz ;;
    containerd)
        command=(containerd --config="$etc/containerd.toml")
        asked=containerd ;;
    kubelet)
        command=(kubelet --config="$etc/kubelet.yaml" --kubeconfig="$etc/kubelet.kubeconfig" --node-ip="$address"
            --hostname-override="$node" --cert-dir=/run/kubelet)
        asked=http://127.0.0.1:10248/healthz ;;
    kube-proxy)
        command=(kube-proxy --kubeconfig="$etc/kube-proxy.kubeconfig" --proxy-mode=nftables
            --hostname-override="$node" --cluster-cidr="$pods"
            # The size of the table of connections belongs to all of this machine.
            --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0)
        asked=http://127.0.0.1:10256/healthz ;;
    coredns)
        command=(coredns -conf "$etc/Corefile")
        asked=http://127.0.0.1:8181/ready ;;
    traefik)
        command=(env KUBECONFIG="$etc/traefik.kubeconfig" traefik --providers.kubernetesingress=true
            --providers.kubernetesingress.ingressclass=traefik
            --providers.kubernetesingress.ingressendpoint.ip="$address"
            --entrypoints.websecure.address="$address:443" --entrypoints.websecure.http.tls=true
            --entrypoints.traefik.address=127.0.0.1:8082 --ping=true
            --global.checknewversion=false --global.sendanonymoususage=false)
        asked=http://127.0.0.1:8082/ping ;;
    *) define_chain "$1" ;;
    esac
}

# --- one program ----------------------------------------------------------------------------------

# Its number in the machine, when it runs.
running() {
    local pid began_then
    [ -e "$state/run/$1" ] || return 1
    read -r pid began_then <"$state/run/$1"
    [ -n "$began_then" ] && [ "$(began "$pid" "/proc/$machine/root")" = "$began_then" ] && echo "$pid"
}

has_ended() { ! running "$1" >/dev/null; }

# Whoever ends at once may be gone before we can see when it began: then the record says just its number.
launch() {
    local command asked
    define "$1"
    # shellcheck disable=SC2016
    enter bash -c '
        record=$1 log=$2
        shift 2
        # What they make is as elsewhere: else pods that are not root could not enter their own "/".
        (umask 022 && exec setsid "$@") >>"$log" 2>&1 </dev/null &
        { line=$(<"/proc/$!/stat"); } 2>/dev/null
        set -- ${line##*) }
        echo "$! ${20}" >"$record.new"
        mv "$record.new" "$record"' _ "$state/run/$1" "$state/log/$1.log" "${command[@]}" 9>&-
}

is_ready() {
    local command asked
    define "$1"
    if has_ended "$1"; then die "$1 has ended: $(log_end "$1")"; fi
    # shellcheck disable=SC2086
    case $asked in
    containerd) succeeds enter ctr version ;;
    virtual-node) virtual_node_is_ready ;;
    *) succeeds enter curl -fsk --max-time 2 $asked ;;
    esac
}

# Whether a command does, without a word. In a shell of its own, so that what a signal makes us say is heard.
succeeds() { ("$@") >/dev/null 2>&1; }

until_ready() { # PROGRAM...
    local program
    for program; do
        until_true 90 "$program" "$program" is_ready "$program"
    done
}

# Send a signal to a program and wait for its end. It may end by itself before. A killed one takes along what it
# has started, as a container does: left alone, gunicorn's workers would stay for as long as somebody waits.
end_program() { # SIGNAL PROGRAM
    local pid
    pid=$(running "$2") || die "$2 does not run"
    # shellcheck disable=SC2016
    enter bash -c 'kill -"$1" -- "$2"' _ "$1" "$([ "$1" != KILL ] || echo -)$pid" 2>/dev/null || true
    until_true 60 "the end of $2" "$2" has_ended "$2"
}

# --- all of them ----------------------------------------------------------------------------------

# What a program has in memory, in MB, with all that it has started in its session.
memory_of() { # PID
    cat "/proc/$machine/root/proc"/[0-9]*/stat 2>/dev/null | sed 's/.*) //' |
        awk -v session="$1" -v page="$(getconf PAGESIZE)" '
            $4 == session { pages += $22 }
            END { printf "%d", pages * page / 1048576 }'
}

show_status() {
    local program pid
    echo "the bed \"$name\": API server at https://$address:6443, Kueue $(kueue_version "$kueue"), files in $state"
    echo "it knows this machine as $host"
    [ -z "$sites" ] || echo "its sites: $sites"
    for program in $(programs); do
        if ! pid=$(running "$program"); then
            printf '  %-20s ended\n' "$program"
        else
            printf '  %-20s runs, %s MB\n' "$program" "$(memory_of "$pid")"
        fi
    done
}
