# The whole chain in a bed: NATS, our plugin and operator, interLink's two programs, and sites beside it,
# each behind a border of its own that lets out nothing but the way to NATS. Source bed/up.sh first.
# shellcheck shell=bash disable=SC2034,SC2054,SC2154

chain_programs=(nats plugin operator interlink virtual-kubelet)
virtual_node=interlink
websocket_port=8443
plugin_port=4000 recorder_port=4002
virtual_kubelet_port=10260
begin_sites=()  # what starts them

# The kinds of sites, each with the script that makes it and has its verbs, and the options of its "up".
site_kinds=(host slurm htcondor podman kubernetes)
declare -A site_script=([host]=slurm-site [slurm]=slurm-site [htcondor]=condor-site [podman]=slurm-site
    [kubernetes]=slurm-site)
declare -A site_options=(
    [host]="--nodes 0 --no-accounting" [slurm]="--nodes 3 --no-accounting"
    [htcondor]="--nodes 2" [podman]="--nodes 0 --no-accounting --podman"
    [kubernetes]="--nodes 0 --no-accounting")

# Sites are called by their kind; further ones of a kind get a word more: host-b.
check_sites() { # NAME...
    local site
    for site; do
        [[ $site =~ ^([a-z]+)(-[a-z0-9]{1,20})?$ && -n ${site_script[${BASH_REMATCH[1]}]:-} ]] ||
            die "\"$site\" is no site: ${site_kinds[*]}, or one of these with a word behind it, such as host-b"
    done
    [ "$(printf '%s\n' "$@" | sort -u | wc -l)" = $# ] || die "a site is there twice: $*"
}

# What it takes that other beds do not need.
build_chain() { # INTERLINK SITE...
    local site
    [ -n "$1" ] || build_part interlink
    for site in "${@:2}"; do "$here/${site_script[${site%%-*}]}" build; done
    name_chain "$1"
}

# Set $interlink to where its two programs are, and $venv to the Python of ours.
name_chain() { # INTERLINK
    interlink=$(realpath "${1:-$(part_folder interlink)}")
    find_python
    # The one that tests have: nats-server is in it, too.
    make_venv test plugin kueue
}

# Where the bed finds these programs, here as inside.
chain_folders() {
    local base
    base=$("$venv/bin/python" -c 'import sys; print(sys.base_prefix)')
    printf '%s\n' "$interlink" "$repo" "$venv"
    case $base in /usr | /usr/*) ;; *) echo "$base" ;; esac
}

# Set $command and $asked, as define does.
define_chain() {
    local etc=$state/etc python="$venv/bin/python"
    case $1 in
    nats)
        command=("$venv/bin/nats-server" --config "$etc/nats/nats-server.conf")
        asked=http://127.0.0.1:8222/healthz ;;
    plugin)
        command=(env PYTHONPATH="$repo" INTERLINK_PLUGIN_CONFIG="$etc/plugin.yaml" "$python" -P -m gunicorn
            --config python:plugin_server.gunicorn_conf plugin_server.wsgi:app)
        asked=http://127.0.0.1:$plugin_port/readyz ;;
    operator)
        command=(env PYTHONPATH="$repo" "$python" -P -m kueue_nats --config "$etc/kueue-nats.yaml")
        asked=http://127.0.0.1:4001/healthz ;;
    interlink)
        # It stumbles over the socket of one that was killed.
        command=(env INTERLINKCONFIGPATH="$etc/interlink.yaml"
            bash -c 'rm -f /run/interlink.sock; exec interlink')
        asked="--request POST --unix-socket /run/interlink.sock http://interlink/pinglink" ;;
    virtual-kubelet)
        command=(env KUBECONFIG="$etc/virtual-kubelet.kubeconfig" CONFIGPATH="$etc/virtual-kubelet.yaml"
            NODENAME="$virtual_node" POD_IP="$address" KUBELET_URL="$address" KUBELET_PORT="$virtual_kubelet_port"
            virtual-kubelet)
        asked=virtual-node ;;
    esac
}

# --- going up -------------------------------------------------------------------------------------

# What needs no cluster: NATS with its users, and the sites, which begin while the cluster does.
begin_chain() {
    local site
    write_nats_configuration
    for site in $sites; do
        start_site "$site" >"$state/log/site-$site.log" 2>&1 9>&- &
        begin_sites+=($!)
    done
    if has_chain; then
        launch nats
        write_chain_configuration
        launch interlink
    fi
}

# One site, with its user at NATS and its submitter.
start_site() { # NAME
    local folder=$state/sites/$1 nats=$state/etc/nats kind=${1%%-*} files
    files=("$nats/credentials/$1.nkey" "$state/pki/ca.crt")
    # Others than root have to read what is in there.
    umask 022
    mkdir -p "$folder"
    # shellcheck disable=SC2086
    site_does up "$1" ${site_options[$kind]}
    site_does lead-to "$1" "$(has_chain && echo "$websocket_port" || echo 443)" "$address"
    if [ "$kind" = kubernetes ]; then
        add_cluster "$1"
        files+=("$folder/kubeconfig")
    fi
    in_venv scripts.lib.bed.site "$folder" "$1" "${files[@]}"
    site_does start "$1" submitter
}

# A verb of the script that has made a site.
site_does() { # VERB NAME ARGUMENT...
    "$here/${site_script[${2%%-*}]}" "$1" "$state/sites/$2" "${@:3}"
}

# The cluster of a site, which is a bed of its own: made for a pool as docs/kubernetes.md says, with the right to see
# nodes, on a cable of the site's. The site's kubeconfig leads to it.
add_cluster() { # SITE
    local far=$name-$1 folder=$state/sites/$1 pool=interlink account=interlink-submitter
    "$here/bed" up kueue --name "$far" >/dev/null
    in_venv scripts.lib.bed.cluster "$folder" "$(name_bed "$far" && echo "$machine")"
    (
        umask 077
        name_bed "$far"
        apply <"$repo/docs/examples/kubernetes-pool.yaml"
        claim_objects "$pool" shared | apply
        kubectl create clusterrole "$account" --verb get,list --resource nodes
        kubectl create clusterrolebinding "$account" --clusterrole "$account" --serviceaccount "$pool:$account"
        account_kubeconfig "$account" "$folder/kubeconfig" "$pool"
        sed -i 's|server: .*|server: https://kubernetes:6443|' "$folder/kubeconfig"
    )
}

# A claim of a directory in the node's memory, as an administrator of the site's cluster makes one for the pool.
claim_objects() { # NAMESPACE NAME
    cat <<OBJECTS
apiVersion: v1
kind: PersistentVolume
metadata: {name: $2}
spec:
  storageClassName: ""
  accessModes: [ReadWriteMany]
  capacity: {storage: 1Mi}
  hostPath: {path: /run/$2, type: DirectoryOrCreate}
  claimRef: {namespace: $1, name: $2}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $2, namespace: $1}
spec:
  storageClassName: ""
  accessModes: [ReadWriteMany]
  volumeName: $2
  resources: {requests: {storage: 1Mi}}
OBJECTS
}

in_venv() { PYTHONPATH="$repo" "$venv/bin/python" -P -m "$@"; }

# What needs the API server. The virtual kubelet comes first: its node is ready half a minute later.
start_chain() {
    in_venv scripts.lib.bed.objects | apply
    account_kubeconfig interlink "$state/etc/virtual-kubelet.kubeconfig"
    launch virtual-kubelet
    account_token plugin >"$state/etc/plugin.token"
    launch plugin
    account_kubeconfig kueue-nats "$state/etc/kueue-nats.kubeconfig"
    launch operator
}

# A token of a ServiceAccount, whose namespace is of the same name if no other is given.
account_token() { kubectl create token "$1" --namespace "${2:-$1}" --duration 720h || die "no token for $1"; }

# A kubeconfig with such a token.
account_kubeconfig() { # NAME FILE [NAMESPACE]
    local token
    token=$(account_token "$1" "${3:-}")
    sed "/^users:/,\$d" "$KUBECONFIG" >"$2"
    cat >>"$2" <<CONFIG
users:
- name: $1
  user: {token: $token}
contexts:
- name: bed
  context: {cluster: bed, user: $1, namespace: ${3:-$1}}
current-context: bed
CONFIG
}

# What needs Kueue, and the end of all that has begun.
finish_chain() {
    local pid sites_there=("${begin_sites[@]}") site
    for site in $sites; do
        wait "${sites_there[0]}" || die "the site \"$site\" does not start: $(log_end "site-$site")"
        sites_there=("${sites_there[@]:1}")
    done
    kubectl wait --for=condition=Established --timeout=30s crd/masterqueues.vk.io >"$state/log/apply.log" 2>&1 ||
        die "MasterQueues are not served: $(log_end apply)"
    apply <"$repo/scripts/lib/bed/queues.yaml"
    say "waiting for the sites"
    if has_chain; then until_ready nats plugin interlink operator; fi
    until_true 60 "the sites in the queues (their submitters say why: $state/sites/*/log/submitter.*)" \
        "$(has_chain && echo operator || echo chart)" all_pools_are_alive
    say "waiting for interLink's node"
    until_true 90 "interLink's node" "$(has_chain && echo virtual-kubelet || echo chart)" virtual_node_is_ready
    if has_chain && [ "$(virtual_kubelet_listed)" = 0 ]; then renew_virtual_kubelet; fi
}

# How often it has listed its pods since the bed is up. While it has not, its node is ready all the same.
virtual_kubelet_listed() { grep -c 'started workers' "$state/log/virtual-kubelet.log"; }

virtual_kubelet_works() { # LISTED-BEFORE
    [ "$(virtual_kubelet_listed)" -gt "$1" ]
}

renew_virtual_kubelet() {
    local before
    say "interLink's virtual kubelet has not listed its pods: it is started once more (docs/troubleshooting.md)"
    end_program KILL virtual-kubelet
    before=$(virtual_kubelet_listed) || true
    launch virtual-kubelet
    until_true 60 "the virtual kubelet" virtual-kubelet virtual_kubelet_works "$before"
}

# Start a program of the bed again. A virtual kubelet that waits for its first list of pods waits for ever.
launch_again() { # PROGRAM
    local before
    if [ "$1" != virtual-kubelet ]; then launch "$1"; return; fi
    before=$(virtual_kubelet_listed) || true
    launch "$1"
    for _ in {1..200}; do
        if virtual_kubelet_works "$before" || has_ended "$1"; then return; fi
        sleep 0.1
    done
    renew_virtual_kubelet
}

all_pools_are_alive() {
    local alive
    alive=$(kubectl get masterqueues.vk.io masterqueue --output 'jsonpath={.status.poolsAlive}' 2>/dev/null) &&
        [ "$alive" = "$(wc -w <<<"$sites")" ]
}

virtual_node_is_ready() {
    succeeds kubectl wait --for=condition=Ready --timeout=1s "node/$virtual_node"
}

# --- configurations -------------------------------------------------------------------------------

write_nats_configuration() {
    local nats=$state/etc/nats site
    signed nats /CN=nats serverAuth DNS:localhost DNS:centre
    {
        "$here/nats-site" init "$nats" --url wss://centre:443 --port "$websocket_port" \
            --cert "$state/pki/nats.crt" --key "$state/pki/nats.key"
        for site in $sites; do
            "$here/nats-site" add "$site" "$site" --dir "$nats"
        done
        # shellcheck disable=SC2086
        "$here/nats-site" open $sites --dir "$nats"
    } >"$state/log/nats-site.log" 2>&1 9>&- || die "no users for NATS: $(log_end nats-site)"
}

write_chain_configuration() {
    local credentials=$state/etc/nats/credentials
    enter mkdir -p /var/lib/plugin
    cat >"$state/etc/plugin.yaml" <<CONFIG
nats:
  servers: ["wss://localhost:$websocket_port"]
  inbox_prefix: _INBOX_plugin
  nkey_file: $credentials/plugin.nkey
  ca_file: $state/pki/ca.crt
listen: http://127.0.0.1:$plugin_port
state_directory: /var/lib/plugin
orphans:
  api_server: https://127.0.0.1:6443
  token_file: $state/etc/plugin.token
  ca_file: $state/pki/ca.crt
  after_s: 20
  at_once: 1000
CONFIG
    cat >"$state/etc/kueue-nats.yaml" <<CONFIG
nats:
  servers: ["wss://localhost:$websocket_port"]
  inbox_prefix: _INBOX_kueue
  nkey_file: $credentials/kueue.nkey
  ca_file: $state/pki/ca.crt
kubeconfig: $state/etc/kueue-nats.kubeconfig
namespace: kueue-nats
listen: 127.0.0.1:4001
CONFIG
    # Over TCP, an idle virtual kubelet is now and then told that its API server has gone, and its node with it.
    cat >"$state/etc/interlink.yaml" <<CONFIG
InterlinkAddress: unix:///run/interlink.sock
InterlinkPort: "0"
SidecarURL: http://127.0.0.1
SidecarPort: "$plugin_port"
VerboseLogging: true
DataRootFolder: /run
CONFIG
    cat >"$state/etc/virtual-kubelet.yaml" <<CONFIG
InterlinkURL: unix:///run/interlink.sock
InterlinkPort: "0"
VerboseLogging: true
Resources: {CPU: "10000", Memory: 100Ti, Pods: "10000"}
HTTP: {Insecure: true}
KubeletHTTP: {Insecure: true}
DisableCSR: true
CONFIG
}

# --- recording ------------------------------------------------------------------------------------

# Keep what interLink's API server sends to the plugin, until this script is told to end.
record() { # FOLDER
    local folder recorder
    has_chain || die "the bed \"$name\" has no interLink of its own: scripts/bed up"
    [ -n "$1" ] || die "where to keep what interLink sends?"
    (umask 077 && mkdir -p "$1")
    folder=$(realpath "$1")
    # Where it writes is not seen inside the bed.
    PYTHONPATH="$repo" nsenter --target "$machine" --net -- \
        "$venv/bin/python" -P -m scripts.lib.bed.recorder "$folder" "$recorder_port" "$plugin_port" 9>&- &
    recorder=$!
    # shellcheck disable=SC2064
    trap "end_record $recorder" EXIT
    until_true 20 "the recorder" "" succeeds enter bash -c ": </dev/tcp/127.0.0.1/$recorder_port"
    lead_interlink_to "$recorder_port"
    say "what interLink sends is kept in $folder, until Ctrl-C"
    wait "$recorder" || true
    die "the recorder has ended"
}

end_record() { # PROCESS
    lead_interlink_to "$plugin_port"
    kill "$1" 2>/dev/null || true
}

# Start interLink's API server anew, with another way to the plugin.
lead_interlink_to() { # PORT
    lock_bed
    sed -i "s/^SidecarPort: .*/SidecarPort: \"$1\"/" "$state/etc/interlink.yaml"
    has_ended interlink || end_program TERM interlink
    launch interlink
    until_ready interlink
    exec 9>&-
}

# --- sites ----------------------------------------------------------------------------------------

# The folder of a site of this bed.
site_folder() { # NAME
    case " $sites " in
    *" $1 "*) echo "$state/sites/$1" ;;
    *) die "no site of the bed is called \"$1\": ${sites:-it has none}" ;;
    esac
}

# End all sites; each is a tree of processes of its own.
end_sites() {
    local folder site
    # One that is still on its way would not be found.
    [ ${#begin_sites[@]} = 0 ] || wait "${begin_sites[@]}" || true
    for folder in "$state"/sites/*/; do
        site=$(basename "$folder")
        [ "${site%%-*}" != kubernetes ] || "$here/bed" down --name "$name-$site" 9>&- ||
            die "the cluster of the site $site does not end"
        [ -e "$folder/site.json" ] || continue
        site_does down "$site" 9>&- || die "the site in $folder does not end"
    done
}
