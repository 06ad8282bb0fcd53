# Shared by the scripts beside this folder: where things are kept, how words are said.
# shellcheck shell=bash disable=SC2034
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${INTERLINK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/interlink-nats}
mkdir -p "$cache"

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

# The mirror that this machine's own apt uses.
debian_mirror() {
    awk '$1 == "URIs:" { print $2; exit }
         $1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }' \
        /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null
}

# Install the Debian packages that are not there yet; only root can.
need_packages() {
    local missing=() package
    for package; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    [ "$(id -u)" -eq 0 ] || die "these Debian packages are needed, and only root can install them: ${missing[*]}"
    say "installing ${missing[*]}"
    # apt-get would not wait for another one, and another of our scripts may be at it.
    {
        flock 7
        { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${missing[@]}"; } \
            >"$cache/apt.log" 2>&1 || die "apt-get could not install ${missing[*]}: see $cache/apt.log"
    } 7>"$cache/apt.lock"
}
