# The root file system of every machine of an HTCondor site, made once: the site root (scripts/site-root)
# with HTCondor. Source common.sh, python.sh and roots.sh first.
# shellcheck shell=bash disable=SC2154

# Raise this when the packages or the set-up below change: the old folder is then left unused.
condor_version=2
condor_packages=(condor nftables iproute2 python3 python3-venv)

# Set $condor_root to where it is (or will be), and $condor_venv to its Python environment, as seen inside.
name_condor_root() {
    local site
    site=$("$here/site-root" path)
    condor_root=$cache/condor-${site##*/}-$condor_version
    find_python
    condor_venv=/opt/interlink/$(requirements | sha256sum | cut -c1-12)
}

# Build what is not there yet. Two of our scripts may start at the same moment: one builds, the other waits.
build_condor_root() {
    name_condor_root
    [ -e "$condor_root/.complete" ] && [ -e "$condor_root$condor_venv/wheels/.complete" ] && return
    exec 8>"$condor_root.lock"
    flock 8
    if [ ! -e "$condor_root/.complete" ]; then
        make_condor_root
    fi
    if [ ! -e "$condor_root$condor_venv/.complete" ]; then
        say "installing what the submitter needs, for the Python of the HTCondor root"
        make_inner_venv "$condor_root" "$condor_venv" >>"$condor_root.log" 2>&1 ||
            die "pip could not install it: see $condor_root.log"
    fi
    if [ ! -e "$condor_root$condor_venv/wheels/.complete" ]; then
        make_inner_wheels "$condor_root" "$condor_venv" >>"$condor_root.log" 2>&1 ||
            die "pip could not get the wheels: see $condor_root.log"
    fi
    exec 8>&-
}

make_condor_root() {
    "$here/site-root" make
    say "building the HTCondor root from the site root (a minute or two, log: $condor_root.log)"
    rm -rf "$condor_root"
    : >"$condor_root.log"
    local step
    for step in copy_into_condor_root install_condor name_images; do
        say "... ${step//_/ }"
        "$step" >>"$condor_root.log" 2>&1 || die "the HTCondor root could not be built ($step): see $condor_root.log"
    done
    touch "$condor_root/.complete"
    say "HTCondor root ready: $(chroot "$condor_root" condor_version | head -n 1)"
}

copy_into_condor_root() {
    cp -a --reflink=auto "$("$here/site-root" path)" "$condor_root" && rm -f "$condor_root/.complete"
}

install_condor() {
    in_root "$condor_root" apt-get -q -o Acquire::Check-Valid-Until=false update &&
        in_root "$condor_root" apt-get -q -y install --no-install-recommends "${condor_packages[@]}" &&
        rm -rf "$condor_root"/var/cache/apt/archives/*.deb
}

# The test images once more under the names by which images.directory has them.
name_images() {
    local file
    for file in "$condor_root"/srv/images/*.sif; do ln -s "${file##*/}" "${file%.sif}" || return; done
}
