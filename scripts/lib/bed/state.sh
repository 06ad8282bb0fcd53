# One bed: where it keeps its files, its machine (name spaces that one process holds), its network.
# Source common.sh and bed/parts.sh first.
# shellcheck shell=bash disable=SC2034,SC2154

# The networks inside, the same in every bed and seen by none but itself.
pods=10.244.0.0/24
services=10.96.0.0/16
kubernetes_service=10.96.0.1
dns_service=10.96.0.10
node=node1

# Set what belongs to the bed of this name.
name_bed() {
    [[ $1 =~ ^[a-z0-9][a-z0-9-]{0,30}$ ]] || die "\"$1\" is no name for a bed: lower-case letters, digits and \"-\""
    name=$1
    state=$cache/beds/$name
    cgroup=interlink-bed-$name
    KUBECONFIG=$state/kubeconfig
    KUBECACHEDIR=$state/kubectl
    # No proxy stands between this machine and a bed on it.
    NO_PROXY='*' no_proxy='*'
    export KUBECONFIG KUBECACHEDIR NO_PROXY no_proxy
    kueue='' with_node='' tied='' assets='' ingress='' chart='' sites='' interlink='' venv=''
    read_facts
}

# What an earlier command has noted; to be asked again by who has waited for the lock.
read_facts() {
    machine='' machine_began='' address='' link='' host=''
    # shellcheck source=/dev/null
    [ ! -e "$state/facts" ] || . "$state/facts"
}

# Add to what the bed's next commands have to know.
note() { # VARIABLE...
    local variable
    for variable; do printf '%s=%q\n' "$variable" "${!variable}"; done >>"$state/facts"
}

# Changes of a bed come one after the other. What is started has to close this file.
lock_bed() {
    local file=$cache/beds/$name.lock
    mkdir -p "$cache/beds"
    chmod 700 "$cache/beds"
    # Who has held it before us may have taken the file away: then it is another one's by now.
    while
        exec 9>"$file"
        flock 9
        ! [ "$file" -ef /dev/fd/9 ]
    do :; done
}

# When the process $1 began, as another one with its number would not have; nothing when there is none, or when it is
# dead with all its threads: before that one of them may hold its ports. With $2, as seen by the machine.
began() {
    local line words
    { line=$(cat "${2:-}/proc/$1/stat"); } 2>/dev/null || return 0
    read -r -a words <<<"${line##*) }"
    [ "${words[0]}" = Z ] && [ "${words[17]}" -le 1 ] || echo "${words[19]}"
}

bed_is_up() { [ -n "$machine" ] && [ "$(began "$machine")" = "$machine_began" ]; }

# Wait until a command succeeds, for some seconds. LOG tells more when it does not.
until_true() { # SECONDS WHAT LOG COMMAND...
    local end=$((SECONDS + $1)) what=$2 log=$3
    shift 3
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || die "waited in vain for $what${log:+: $(log_end "$log")}"
        sleep 0.05
    done
}

# Where a log is and how it ends, for the words about what has failed.
log_end() {
    local file=$state/log/$1.log
    printf 'see %s, which ends with\n' "$file"
    tail -n 5 "$file" 2>/dev/null | cut -c 1-300 | sed 's/^/    /'
}

# --- the machine ----------------------------------------------------------------------------------

# Run a command in the machine.
enter() {
    nsenter --target "$machine" --mount --net --ipc --uts --pid -- \
        env -i HOME=/root LANG=C.UTF-8 PATH="$inner_path" "$@"
}

# With "tied" it ends with the input of this script, and somebody stays to clear away what is left then; but not the
# logs of a bed that did not come up. Neither is a child of ours: who kills this script with all its children, as a
# Ctrl-C of tests does, has it cleared away, too.
start_machine() { # FOLDER...
    local apart
    apart=(unshare --mount --propagation private --net --ipc --uts --pid --fork --kill-child)
    apart+=(bash "$here/lib/bed/machine.sh" "$state" "$cgroup" "$@")
    apart=(bash -c 'echo $$ >"$1"; exec "${@:2}"' _ "$state/run/above" "${apart[@]}")
    [ -z "$tied" ] || apart=(bash -c '"${@:4}"; [ ! -e "$3" ] || exec "$1" clear --tied --name "$2" 3<&-' _ \
        "$here/bed" "$name" "$state/facts" "${apart[@]}")
    if [ -n "$tied" ]; then exec 3<&0; else exec 3</dev/null; fi
    exec 8> >(exec setsid --fork "${apart[@]}" >"$state/log/machine.log" 2>&1 9>&-)
    exec 3<&-
    until_true 20 "the machine" machine machine_is_ready
    machine=$(child "$(cat "$state/run/above")")
    machine_began=$(began "$machine")
    note machine machine_began
    echo "${tied:+tied}" >&8
    exec 8>&-
}

# The one process that another one has started.
child() { cut -d ' ' -f 1 "/proc/$1/task/$1/children"; }

machine_is_ready() {
    local above
    [ ! -e "$state/run/machine" ] || return 0
    above=$(cat "$state/run/above" 2>/dev/null) || true
    [ -z "$above" ] || [ -n "$(began "$above")" ] || die "the machine does not start: $(log_end machine)"
    return 1
}

# --- the network ----------------------------------------------------------------------------------

# A cable between this machine and the bed's, with the first addresses that nobody has. Its name is the
# lock: no two have the same. 198.18.0.0/15 is kept for tests of networks and routed nowhere.
connect() {
    local first number try said
    first=$(($(cksum <<<"$name" | cut -d ' ' -f 1) % 256))
    for ((try = 0; try < 256; try++)); do
        number=$(((first + try) % 256))
        if ip -4 route show to match "198.18.$number.0/30" | grep -qv '^default'; then continue; fi
        link=bed$number
        said=$(ip link add "$link" type veth peer name outside netns "$machine" 2>&1) && break
        case $said in *"File exists"*) ;; *) die "no cable to the bed: $said" ;; esac
        link=
    done
    [ -n "$link" ] || die "no addresses are left for another bed"
    address=198.18.$number.2
    host=198.18.$number.1
    note link address host
    ip link set "$link" alias "$cgroup $machine_began" up
    ip address add "$host/30" dev "$link"
    # A service address without a rule of kube-proxy's ends at a switch that leads nowhere. What pods send
    # outside comes from the bed's address: this machine knows no way to theirs.
    enter ip -batch - <<IP
address add $address/30 dev outside
link set outside up
link add services type bridge
link set services up
route add $services dev services src $address
IP
    [ -z "$with_node" ] || enter nft -f - <<NFT
table ip bed {
    chain out {
        type nat hook postrouting priority srcnat
        ip saddr $pods oifname "outside" masquerade
    }
}
NFT
}

# --- the end --------------------------------------------------------------------------------------

# End all of it at once, also what is left of a bed whose machine has died.
end_machine() {
    end_sites
    # It goes with the machine too, but not at once; and another bed may have one of this name by now.
    if [ -n "$link" ] && [ "$(cat "/sys/class/net/$link/ifalias" 2>/dev/null)" = "$cgroup $machine_began" ]; then
        ip link delete "$link" 2>/dev/null || true
    fi
    if bed_is_up; then
        kill -KILL "$machine" 2>/dev/null || true
        until_true 30 "the end of the bed's machine" "" machine_has_ended
    fi
    until_true 30 "the end of its control groups" "" remove_cgroups
    machine='' link=''
}

machine_has_ended() { ! bed_is_up; }

remove_cgroups() {
    local folder
    for folder in "/sys/fs/cgroup/$cgroup" /sys/fs/cgroup/*/"$cgroup"; do
        [ ! -d "$folder" ] || find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || return 1
    done
}

take_down() {
    end_machine
    rm -rf "$state"
}
