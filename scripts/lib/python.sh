# The Python behind our scripts: which interpreter, and virtual environments made with it.
# Source common.sh first.
# shellcheck shell=bash disable=SC2154

# A command that $python must run under, if any.
inside=()

# Whether $1 is a Python that really runs (pyenv leaves names that do not) of version $2.$3 or later.
runs() {
    "$1" -c "import sys; sys.exit(sys.version_info < ($2, $3))" >/dev/null 2>&1
}

# Set $python to the interpreter for everything but the py39 tier.
find_python() {
    if [ -n "${INTERLINK_PYTHON:-}" ]; then
        runs "$INTERLINK_PYTHON" 3 11 || die "INTERLINK_PYTHON=$INTERLINK_PYTHON is not a Python 3.11 or later that runs"
        python=$INTERLINK_PYTHON
        return
    fi
    # The distribution's own first: it is optimized, as one that was compiled by hand most often is not.
    for python in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
        runs "$python" 3 11 && return
    done
    die "no Python 3.11 or later here: install one, or name it in INTERLINK_PYTHON"
}

# The requirements of the project and of the named extras, one on a line, as setup.cfg lists them.
requirements() {
    "${inside[@]}" "$python" -c '
import configparser, sys
cfg = configparser.RawConfigParser()
cfg.read(sys.argv[1])
lists = [cfg["options"]["install_requires"]]
lists += [cfg["options.extras_require"][extra] for extra in sys.argv[2:]]
print(*(line for text in lists for line in text.strip().splitlines()), sep="\n")' "$repo/setup.cfg" "$@"
}

# Set $venv to a virtual environment of $python with the project's requirements and those of the named
# extras. The project itself is not in it: it runs from its sources. Made once for each list of
# requirements, so that only the first run (and the first after a change of the list) takes time.
make_venv() {
    local wanted version lock
    wanted=$(requirements "$@")
    version=$("${inside[@]}" "$python" -c 'import platform; print(platform.python_version())')
    venv=$cache/venv/$version$([ $# -eq 0 ] || printf -- "-%s" "$@")-$(sha256sum <<<"$wanted" | cut -c1-12)
    mkdir -p "$cache/venv"
    # Two of our scripts may start at the same moment: one makes it, the other waits for it.
    exec {lock}>"$venv.lock"
    flock "$lock"
    if [ ! -e "$venv/.complete" ] || ! "${inside[@]}" "$venv/bin/python" -c '' 2>/dev/null; then
        say "making a virtual environment with Python $version${*:+ ($*)}"
        rm -rf "$venv"
        new_venv
        if ! "${inside[@]}" "$venv/bin/python" -m pip install --disable-pip-version-check --quiet \
            --requirement /dev/stdin <<<"$wanted" >"$venv.log" 2>&1; then
            die "pip could not install the requirements (is the package index reachable?):" \
                "$(grep ERROR "$venv.log" | tail -n 1 || true) (log: $venv.log)"
        fi
        touch "$venv/.complete"
    fi
    exec {lock}>&-
}

# Debian's own Python comes without what makes environments; root can put it there.
new_venv() {
    "${inside[@]}" "$python" -m venv "$venv" >"$venv.log" 2>&1 && return
    grep -q ensurepip "$venv.log" || die "$python -m venv failed: see $venv.log"
    need_packages python3-venv
    "${inside[@]}" "$python" -m venv --clear "$venv" >"$venv.log" 2>&1 || die "$python -m venv failed: see $venv.log"
}

# Set $python to a Python 3.9 of this machine; fail when it has none.
look_for_python39() {
    for python in python3.9 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.9.*/bin/python; do
        "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 9))' >/dev/null 2>&1 && return
    done
    return 1
}

# Set $python to that, or $python and $inside to the one of a Debian 11 root.
find_python39() {
    look_for_python39 && return
    make_bullseye
    python=/usr/bin/python3.9
    inside=(in_bullseye)
}

# Debian 11, the newest one with Python 3.9, in a folder of the cache.
bullseye=$cache/bullseye-2

make_bullseye() {
    [ -e "$bullseye/.complete" ] && return
    [ "$(id -u)" -eq 0 ] || die "no Python 3.9 here, and only root can make a Debian 11 root that has it"
    need_packages debootstrap
    say "building a Debian 11 root for its Python 3.9 (a minute or two, log: $bullseye.log)"
    rm -rf "$bullseye"
    debootstrap --variant=minbase \
        --include=ca-certificates,python3,python3-venv,busybox-static,gawk,mawk,procps,shellcheck \
        bullseye "$bullseye" "$(debian_mirror)" >"$bullseye.log" 2>&1 ||
        die "debootstrap could not build a Debian 11 root: see $bullseye.log"
    rm -rf "$bullseye"/var/cache/apt/archives/*.deb
    touch "$bullseye/.complete"
}

# Run a command in that root. The repository, the cache and /tmp are seen in their own places; name
# servers, certificates and pip's settings are this machine's.
in_bullseye() {
    unshare --mount --propagation private bash -c '
        root=$1; shift
        for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/pip.conf \
            "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
            if [ -e "$file" ]; then mkdir -p "$root${file%/*}"; cp -L "$file" "$root$file"; fi
        done
        for dir in "$BIND_REPO" "$BIND_CACHE" /tmp /dev /proc /sys; do
            mkdir -p "$root$dir"
            mount --rbind "$dir" "$root$dir"
        done
        exec chroot "$root" env --chdir="$PWD" "$@"' _ "$bullseye" "$@"
}
export BIND_REPO="$repo" BIND_CACHE="$cache"
