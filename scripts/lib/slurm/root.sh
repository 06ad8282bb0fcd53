# The root file system of every machine of a Slurm site, made once: the site root (scripts/site-root)
# with Slurm, its database and MPI. Source common.sh and python.sh first.
# shellcheck shell=bash disable=SC2154

# Raise this when the packages or the set-up below change: the old folder is then left unused.
slurm_version=4
slurm_packages=(slurm-wlm slurm-client slurmdbd slurm-wlm-mysql-plugin munge mariadb-server openmpi-bin
    nftables iproute2 iputils-ping python3 python3-venv docker-registry openssl catatonit)

# Set $slurm_root to where it is (or will be), and $slurm_venv to its Python environment, as seen inside.
name_slurm_root() {
    local site
    site=$("$here/site-root" path)
    slurm_root=$cache/slurm-${site##*/}-$slurm_version
    find_python
    slurm_venv=/opt/interlink/$(requirements kubernetes | sha256sum | cut -c1-12)
}

# Build what is not there yet. Two of our scripts may start at the same moment: one builds, the other waits.
build_slurm_root() {
    name_slurm_root
    [ -e "$slurm_root/.complete" ] && [ -e "$slurm_root$slurm_venv/wheels/.complete" ] && return
    exec 8>"$slurm_root.lock"
    flock 8
    if [ ! -e "$slurm_root/.complete" ]; then
        make_slurm_root
    fi
    if [ ! -e "$slurm_root$slurm_venv/.complete" ]; then
        say "installing what the submitter needs, for the Python of the Slurm root"
        make_slurm_venv >>"$slurm_root.log" 2>&1 || die "pip could not install it: see $slurm_root.log"
    fi
    if [ ! -e "$slurm_root$slurm_venv/wheels/.complete" ]; then
        make_inner_wheels "$slurm_root" "$slurm_venv" kubernetes >>"$slurm_root.log" 2>&1 ||
            die "pip could not get the wheels: see $slurm_root.log"
    fi
    exec 8>&-
}

make_slurm_root() {
    "$here/site-root" make
    say "building the Slurm root from the site root (two or three minutes, log: $slurm_root.log)"
    rm -rf "$slurm_root"
    : >"$slurm_root.log"
    local step
    for step in copy_site_root install_slurm install_old_mariadb_client set_up_mpi make_registry make_database; do
        say "... ${step//_/ }"
        "$step" >>"$slurm_root.log" 2>&1 || die "the Slurm root could not be built ($step): see $slurm_root.log"
    done
    touch "$slurm_root/.complete"
    say "Slurm root ready: $(chroot "$slurm_root" slurmctld -V)"
}

copy_site_root() {
    cp -a --reflink=auto "$("$here/site-root" path)" "$slurm_root" && rm -f "$slurm_root/.complete"
}

install_slurm() {
    in_slurm_root apt-get -q -o Acquire::Check-Valid-Until=false update &&
        in_slurm_root apt-get -q -y install --no-install-recommends "${slurm_packages[@]}" &&
        mkdir "$slurm_root/var/lib/interlink" && rm -rf "$slurm_root"/var/cache/apt/archives/*.deb
}

# sid's MariaDB client does not get along with slurmdbd ("_check_mysql_concat_is_sane" is its last word),
# Debian 12's does. It lies beside the other one, for slurmdbd alone.
install_old_mariadb_client() (
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cd "$folder" && apt-get -q update && apt-get -q download libmariadb3 &&
        dpkg-deb -x libmariadb3_*.deb . && mkdir -p "$slurm_root/opt/libmariadb" &&
        cp usr/lib/*/libmariadb.so.3 "$slurm_root/opt/libmariadb/"
)

# A program to try it with, whose compiler goes when it has done its work. Debian's MPI talks to its own
# machine only, until it is told which network leads to others.
set_up_mpi() {
    cp "$here/lib/slurm/hello.c" "$slurm_root/root/hello.c" &&
        in_slurm_root apt-get -q -y install --no-install-recommends gcc libc6-dev libopenmpi-dev &&
        in_slurm_root mpicc -O -o /usr/local/bin/mpi-hello /root/hello.c &&
        in_slurm_root apt-get -q -y purge --auto-remove gcc libc6-dev libopenmpi-dev &&
        in_slurm_root apt-get -q -y install --no-install-recommends "${slurm_packages[@]}" &&
        rm -rf "$slurm_root"/var/cache/apt/archives/*.deb &&
        sed -i 's/^btl_tcp_if_include=.*/btl_tcp_if_include=lan/' "$slurm_root/etc/openmpi/openmpi-mca-params.conf"
}

# A mirror of Docker Hub with the test images, which every site has for itself; sites believe its certificate.
make_registry() (
    folder=$slurm_root/srv/registry
    address=127.0.0.7:5000  # only while it is filled
    mkdir -p "$folder" && cd "$folder" &&
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -keyout ca.key -out ca.crt \
            -subj /CN=interlink-site-registry -addext keyUsage=critical,keyCertSign,cRLSign &&
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out request.pem -subj /CN=docker.io &&
        echo subjectAltName=DNS:registry-1.docker.io,DNS:index.docker.io,DNS:docker.io >names &&
        openssl x509 -req -in request.pem -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile names -out cert.pem &&
        cp ca.crt "$slurm_root/usr/local/share/ca-certificates/interlink-site.crt" && rm ca.key request.pem names &&
        chroot "$slurm_root" update-ca-certificates || exit
    store='{filesystem: {rootdirectory: /srv/registry/store}}'
    printf 'version: 0.1\nstorage: %s\nhttp: {addr: "%s"}\n' "$store" "$address" >filling.yml
    printf 'version: 0.1\nlog: {level: error}\nstorage: {%s, maintenance: {readonly: {enabled: true}}}\n' \
        "${store:1:-1}" >config.yml
    printf 'http: {addr: ":443", tls: {certificate: /srv/registry/cert.pem, key: /srv/registry/key.pem}}\n' >>config.yml
    fill_registry "$address"
)

fill_registry() (
    need_packages skopeo
    images=$(mktemp -d -p /var/tmp)
    chmod 777 "$images"
    trap 'rm -rf "$images"' EXIT
    # It ends with its input, which ends with this script.
    exec 7> >(in_slurm_root sh -c 'docker-registry serve /srv/registry/filling.yml & read -r _')
    registry=$!
    until (: <>"/dev/tcp/${1/://}") 2>/dev/null; do
        kill -0 "$registry" || exit
        sleep 0.1
    done
    for name in library/busybox:1.36 tests/entry:1; do
        rm -f "$images/image.tar"
        SITE_BIND=$images "$here/site-root" run podman save -q --format oci-archive -o "$images/image.tar" "docker.io/$name" &&
            skopeo copy --quiet --retry-times 5 --dest-tls-verify=false "oci-archive:$images/image.tar" \
                "docker://$1/$name" || exit
    done
    rm "$slurm_root/srv/registry/filling.yml"
)

# Accounts, users and limits: every site gets a copy of the database and of what the controller made of it.
make_database() (
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    mkdir -p "$slurm_root/var/lib/mysql" "$slurm_root/var/spool/slurm" &&
        PYTHONPATH="$repo" "$python" -P -m scripts.lib.slurm.main prepare --root "$slurm_root" \
            --python "$slurm_venv/bin/python" "$folder"
)

make_slurm_venv() { make_inner_venv "$slurm_root" "$slurm_venv" kubernetes; }

in_slurm_root() { in_root "$slurm_root" "$@"; }
