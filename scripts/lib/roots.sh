# What is done inside of a root file system while it is built. Source common.sh and python.sh first.
# shellcheck shell=bash disable=SC2154

# A Python environment at $2 in the root $1, with what the submitter needs, and what some of its extras do.
make_inner_venv() { # ROOT VENV [EXTRA...]
    rm -rf "${1:?}$2"
    in_root "$1" python3 -m venv "$2" &&
        requirements "${@:3}" | in_root "$1" "$2/bin/python" -m pip install --disable-pip-version-check \
            --quiet --requirement /dev/stdin && touch "$1$2/.complete"
}

# The same once more as files, for who installs the submitter where no package index can be reached.
make_inner_wheels() { # ROOT VENV EXTRA...
    rm -rf "${1:?}$2/wheels"
    { requirements "${@:3}"; echo setuptools; echo wheel; } | in_root "$1" "$2/bin/python" -m pip wheel \
        --disable-pip-version-check --quiet --wheel-dir "$2/wheels" --requirement /dev/stdin &&
        touch "$1$2/wheels/.complete"
}

# Run a command in a root as root, with this machine's network, name servers, certificates and pip's
# settings. All that it leaves running dies with it.
in_root() { # ROOT COMMAND...
    unshare --mount --propagation private --pid --fork --kill-child bash -c '
        root=$1; shift
        mount --bind "$root" "$root"; cd "$root"
        mount -t proc proc proc; mount --rbind /sys sys; mount --rbind /dev dev
        mount -t tmpfs tmpfs run; mount -t tmpfs -o mode=1777 tmpfs tmp
        for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/pip.conf \
            "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
            [ -e "$file" ] || continue
            mkdir -p ".${file%/*}"; [ -e ".$file" ] || : >".$file"
            mount --bind "$(readlink -f "$file")" ".$file"
        done
        mkdir -p .old run/lock; pivot_root . .old; umount -l /.old; cd /root
        export DEBIAN_FRONTEND=noninteractive
        exec "$@"' _ "$@"
}
