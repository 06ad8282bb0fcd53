# The whole chain in a bed as a release of our chart: images on the node, Traefik in front of NATS, and sites that
# come in through it. Source bed/chain.sh first.
# shellcheck shell=bash disable=SC2154

release=interlink  # and its namespace
image_prefix=registry.example.org/interlink

# What it takes that other beds do not need.
build_chart() {
    build_part helm
    images=$("$here/lib/chart/images.sh" "$venv/bin/nats-server" "$interlink") || die "no images for the chart"
}

install_chart() {
    say "giving the node the images"
    enter ctr --namespace k8s.io images import - <"$images/chain.tar" >"$state/log/images.log" 2>&1 ||
        die "no images for the node: $(log_end images)"
    signed websocket /CN=centre serverAuth DNS:centre
    chart_values >"$state/etc/values.yaml"
    {
        kubectl create namespace "$release" &&
            kubectl create secret tls websocket --namespace "$release" \
                --cert "$state/pki/websocket.crt" --key "$state/pki/websocket.key"
    } >"$state/log/chart.log" 2>&1 || die "no certificate for the Ingress: $(log_end chart)"
    say "installing the chart"
    "$(part_folder helm)/helm" install "$release" "$repo/chart" --namespace "$release" \
        --values "$state/etc/values.yaml" --wait --timeout 3m >>"$state/log/chart.log" 2>&1 ||
        { show_release >>"$state/log/chart.log" 2>&1; die "the chart cannot be installed: $(log_end chart)"; }
}

# What its pods say, for who has to find out.
show_release() {
    kubectl get pods --namespace "$release" --output wide
    kubectl get events --namespace "$release" --sort-by .lastTimestamp
    kubectl logs --namespace "$release" --selector "app.kubernetes.io/instance=$release" --all-containers --prefix \
        --tail 20 --ignore-errors
}

# The sites prove who they are by their keys.
chart_values() {
    local site
    cat <<VALUES
images: {registry: $image_prefix, pullPolicy: Never}
hostname: centre
ingress: {className: traefik, tls: {secretName: websocket}}
virtualNode:
  interlink: {image: {repository: $image_prefix/interlink, tag: test}}
  virtualKubelet: {image: {repository: $image_prefix/virtual-kubelet, tag: test}}
test: {pool: ${sites%% *}}
nats:
  image: {repository: $image_prefix/nats, tag: test}
  sites:
VALUES
    for site in $sites; do
        echo "    - {name: $site, pools: [$site], nkey: $(public_key "$site")}"
    done
}

# Of a user of NATS.
public_key() { "$here/nats-site" list --dir "$state/etc/nats" | awk -v name="$1" '$1 == name { print $2 }'; } # NAME
