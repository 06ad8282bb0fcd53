# The root file system of a podman host, made once: the site root (scripts/site-root) with what pods with networks of
# their own need, and Python for the submitter. Source common.sh, python.sh and roots.sh first.
# shellcheck shell=bash disable=SC2154

# Raise this when the packages or the set-up below change: the old folder is then left unused.
podman_version=1
podman_packages=(catatonit iproute2 python3 python3-venv)

# Set $podman_root to where it is (or will be), and $podman_venv to its Python environment, as seen inside.
name_podman_root() {
    local site
    site=$("$here/site-root" path)
    podman_root=$cache/podman-${site##*/}-$podman_version
    find_python
    podman_venv=/opt/interlink/$(requirements | sha256sum | cut -c1-12)
}

# Build what is not there yet. Two of our scripts may start at the same moment: one builds, the other waits.
build_podman_root() {
    name_podman_root
    [ -e "$podman_root/.complete" ] && [ -e "$podman_root$podman_venv/.complete" ] && return
    exec 8>"$podman_root.lock"
    flock 8
    if [ ! -e "$podman_root/.complete" ]; then
        make_podman_root
    fi
    if [ ! -e "$podman_root$podman_venv/.complete" ]; then
        say "installing what the submitter needs, for the Python of the podman root"
        make_inner_venv "$podman_root" "$podman_venv" >>"$podman_root.log" 2>&1 ||
            die "pip could not install it: see $podman_root.log"
    fi
    exec 8>&-
}

make_podman_root() {
    "$here/site-root" make
    say "building the podman root from the site root (a minute or two, log: $podman_root.log)"
    rm -rf "$podman_root"
    : >"$podman_root.log"
    local step
    for step in copy_into_podman_root install_for_podman; do
        say "... ${step//_/ }"
        "$step" >>"$podman_root.log" 2>&1 || die "the podman root could not be built ($step): see $podman_root.log"
    done
    touch "$podman_root/.complete"
    say "podman root ready: $(in_root "$podman_root" podman --version)"
}

copy_into_podman_root() {
    cp -a --reflink=auto "$("$here/site-root" path)" "$podman_root" && rm -f "$podman_root/.complete"
}

install_for_podman() {
    in_root "$podman_root" apt-get -q -o Acquire::Check-Valid-Until=false update &&
        in_root "$podman_root" apt-get -q -y install --no-install-recommends "${podman_packages[@]}" &&
        rm -rf "$podman_root"/var/cache/apt/archives/*.deb
}
