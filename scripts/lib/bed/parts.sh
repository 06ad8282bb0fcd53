# What a bed is made of: which parts there are, where the cache keeps them, and how one gets there.
# Source common.sh first.
# shellcheck shell=bash disable=SC2034,SC2154

# Raise this when a recipe in bed/make.sh changes: what was made by an older one is then left unused.
bed_recipe=1
kubernetes_version=1.36.2
coredns_version=1.13.1
interlink_version=0.5.2-pre2
helm_version=3.21.4
cert_manager_version=1.20.0
prometheus_operator_version=0.83.0
oauth2_proxy_version=7.8.1
traefik_version=3.6.0
kueue_versions=(0.19.2 0.14.8)
oldest_go=1.26
# What "build" makes when nothing is named. The old Kueue is for tests of what must work with both; helm and Traefik
# are for the chart, and the kinds of cert-manager and of the Prometheus operator and OAuth2-proxy for tests of it;
# Prometheus is for a test of its dashboard.
bed_parts=(debian kubernetes coredns kueue-0.19 interlink)
known_parts=("${bed_parts[@]}" kueue-0.14 helm traefik cert-manager prometheus-operator oauth2-proxy prometheus)

# The full version of the Kueue whose version begins with $1.
kueue_version() {
    local version
    for version in "${kueue_versions[@]}"; do
        case $version in "$1".*) echo "$version"; return ;; esac
    done
    die "no Kueue $1 here, only ${kueue_versions[*]%.*}"
}

# The version of a part.
part_version() {
    case $1 in
    debian | prometheus) (. /etc/os-release && echo "${VERSION_CODENAME:-sid}") ;;
    kubernetes) echo "$kubernetes_version" ;;
    coredns) echo "$coredns_version" ;;
    interlink) echo "$interlink_version" ;;
    kueue-*) kueue_version "${1#kueue-}" ;;
    helm) echo "$helm_version" ;;
    cert-manager) echo "$cert_manager_version" ;;
    prometheus-operator) echo "$prometheus_operator_version" ;;
    oauth2-proxy) echo "$oauth2_proxy_version" ;;
    traefik) echo "$traefik_version" ;;
    *) die "no part is called \"$1\": ${known_parts[*]}" ;;
    esac
}

# Where the cache keeps a part.
part_folder() {
    local version
    version=$(part_version "$1") || exit
    echo "$cache/bed-${1%-0.*}-$version-$bed_recipe"
}

# What to expect of a build, on two cores.
part_pace() {
    case $1 in
    debian | prometheus | cert-manager | prometheus-operator) echo "some seconds" ;;
    helm | oauth2-proxy) echo "about two minutes" ;;
    kubernetes | traefik) echo "five to ten minutes" ;;
    coredns | interlink) echo "about three minutes" ;;
    kueue-*) echo "about four minutes" ;;
    esac
}

# Set $go to a Go that can build the rest.
find_go() {
    local version
    go=$(command -v go || echo /usr/local/go/bin/go)
    version=$(GOTOOLCHAIN=local "$go" env GOVERSION 2>/dev/null) ||
        die "no Go here: Kubernetes and Kueue are built with Go $oldest_go or later"
    printf '%s\n' "$oldest_go" "${version#go}" | sort -V -C ||
        die "$go is $version: Kubernetes and Kueue are built with Go $oldest_go or later"
}

# Build a part that is not there yet. Two of our scripts may start at the same moment: one builds, the
# other waits. A build that was broken off goes on with what it had fetched and compiled.
build_part() {
    local part=$1 folder lock recipe
    folder=$(part_folder "$part")
    [ ! -e "$folder" ] || return 0
    exec {lock}>"$folder.lock"
    flock "$lock"
    if [ ! -e "$folder" ]; then
        case $part in debian | prometheus) ;; *) find_go ;; esac
        say "building $part, version $(part_version "$part") ($(part_pace "$part"), log: $folder.log)"
        # A group of its own, so that all of it ends when this script is told to.
        set -m
        bash "$here/lib/bed/make.sh" "$part" "$folder.draft" "${go:-}" >"$folder.log" 2>&1 </dev/null &
        recipe=$!
        set +m
        trap 'kill -TERM -- -"$recipe" 2>/dev/null; exit 130' INT TERM
        if ! wait "$recipe"; then
            say "$part could not be built: see $folder.log, which ends with"
            tail -n 3 "$folder.log" | sed 's/^/    /' >&2
            exit 1
        fi
        trap 'exit 130' INT TERM
        mv "$folder.draft/out" "$folder"
        rm -rf "$folder.draft"
        say "... $part is ready"
    fi
    exec {lock}>&-
}
