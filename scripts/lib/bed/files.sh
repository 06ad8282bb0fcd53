# What stands in the files of a bed: keys and certificates, who is who, configurations, first objects.
# Source bed/state.sh first. All of it is below $state, which only root can look into.
# shellcheck shell=bash disable=SC2154

# --- keys -----------------------------------------------------------------------------------------

certificate() { # NAME SUBJECT OPTION...
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -config "$state/pki/openssl.cnf" \
        -keyout "$state/pki/$1.key" -out "$state/pki/$1.crt" -subj "$2" "${@:3}" 2>>"$state/log/openssl.log" ||
        die "no certificate for $1: $(log_end openssl)"
}

make_authority() {
    # Without the extensions that this machine's own settings would add.
    printf '[req]\ndistinguished_name = name\n[name]\n' >"$state/pki/openssl.cnf"
    certificate ca /CN=bed -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign,cRLSign \
        -addext subjectKeyIdentifier=hash
}

signed() { # NAME SUBJECT PURPOSE [HOST...]
    local names
    names=$(printf ',%s' "${@:4}")
    certificate "$1" "$2" -CA "$state/pki/ca.crt" -CAkey "$state/pki/ca.key" \
        -addext basicConstraints=critical,CA:false -addext keyUsage=critical,digitalSignature \
        -addext "extendedKeyUsage=$3" -addext authorityKeyIdentifier=keyid:always \
        ${4:+-addext "subjectAltName=${names#,}"}
}

# A kubeconfig for whom a certificate names, good on this machine and in the bed.
kubeconfig() { # NAME SUBJECT FILE
    signed "$1" "$2" clientAuth
    cat >"$3" <<CONFIG
apiVersion: v1
kind: Config
clusters:
- name: bed
  cluster:
    server: https://$address:6443
    certificate-authority-data: $(base64 -w 0 "$state/pki/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w 0 "$state/pki/$1.crt")
    client-key-data: $(base64 -w 0 "$state/pki/$1.key")
contexts:
- name: bed
  context: {cluster: bed, user: $1}
current-context: bed
CONFIG
}

make_keys() {
    local kubernetes=DNS:kubernetes part
    for part in default svc cluster local; do
        kubernetes+=",DNS:${kubernetes##*:}.$part"
    done
    make_authority
    signed apiserver /CN=kube-apiserver serverAuth "$kubernetes" DNS:localhost \
        "IP:127.0.0.1,IP:$address,IP:$kubernetes_service"
    signed apiserver-client /O=system:masters/CN=kube-apiserver clientAuth
    signed kueue-webhook /CN=kueue-webhook serverAuth DNS:kueue-webhook-service.kueue-system.svc
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$state/pki/tokens.key" 2>>"$state/log/openssl.log"
    openssl pkey -in "$state/pki/tokens.key" -pubout -out "$state/pki/tokens.pub"
    kubeconfig admin /O=system:masters/CN=admin "$KUBECONFIG"
    kubeconfig controller-manager /CN=system:kube-controller-manager "$state/etc/controller-manager.kubeconfig"
    kubeconfig scheduler /CN=system:kube-scheduler "$state/etc/scheduler.kubeconfig"
    # Kueue has the rights of its own installation, and no others.
    kubeconfig kueue /CN=system:serviceaccount:kueue-system:kueue-controller-manager "$state/etc/kueue.kubeconfig"
    [ -z "$ingress" ] || kubeconfig traefik /CN=bed:traefik "$state/etc/traefik.kubeconfig"
    [ -n "$with_node" ] || return 0
    kubeconfig kubelet "/O=system:nodes/CN=system:node:$node" "$state/etc/kubelet.kubeconfig"
    kubeconfig kube-proxy /CN=system:kube-proxy "$state/etc/kube-proxy.kubeconfig"
    kubeconfig coredns /CN=bed:coredns "$state/etc/coredns.kubeconfig"
}

# --- configurations -------------------------------------------------------------------------------

write_kueue_configuration() {
    local version=v1beta2
    [ "$kueue" != 0.14 ] || version=v1beta1
    cat >"$state/etc/kueue.yaml" <<CONFIG
apiVersion: config.kueue.x-k8s.io/$version
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: "0"}
webhook: {port: 9443, certDir: $state/etc/kueue-webhook}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
featureGates: {VisibilityOnDemand: false}
clientConnection: {qps: 300, burst: 500}
integrations: {frameworks: [batch/job, pod]}
CONFIG
    mkdir "$state/etc/kueue-webhook"
    cp "$state/pki/kueue-webhook.crt" "$state/etc/kueue-webhook/tls.crt"
    cp "$state/pki/kueue-webhook.key" "$state/etc/kueue-webhook/tls.key"
    # Kueue wants to see a pair in this place too, even when it serves no metrics.
    enter mkdir -p /etc/kueue/metrics
    enter ln -s "$state/etc/kueue-webhook" /etc/kueue/metrics/certs
}

write_node_configuration() {
    # In "registries" is a folder for each registry that is reached in another way than https.
    mkdir "$state/etc/cni" "$state/etc/registries"
    cat >"$state/etc/containerd.toml" <<CONFIG
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/interlink-nats/pause:1"
  disable_apparmor = true
  # Root of a container may lack the right to lower a score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "$state/etc/registries"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(part_folder debian)/cni"
    conf_dir = "$state/etc/cni"
CONFIG
    # Each pod has a cable of its own to the node: what goes to a service then passes the node's rules on
    # its way there and back, also between pods.
    cat >"$state/etc/cni/10-bed.conflist" <<CONFIG
{"cniVersion": "1.0.0", "name": "bed", "plugins": [{"type": "ptp",
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pods"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
CONFIG
    cat >"$state/etc/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
volumePluginDir: /var/lib/kubelet/volume-plugins
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $state/pki/ca.crt}
authorization: {mode: Webhook}
clusterDomain: cluster.local
clusterDNS: [$dns_service]
evictionHard: {memory.available: 50Mi, nodefs.available: "1%", imagefs.available: "1%"}
CONFIG
    cat >"$state/etc/Corefile" <<CONFIG
.:53 {
    bind $address
    errors
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa {
        kubeconfig $state/etc/coredns.kubeconfig
    }
    cache 5
}
CONFIG
}

# --- objects --------------------------------------------------------------------------------------

# A service that leads to a program of the bed's own, which is no pod.
service_here() { # NAMESPACE NAME CLUSTER_ADDRESS "NAME PROTOCOL PORT TARGET"...
    local namespace=$1 service=$2 cluster_address=$3 port protocol from to
    shift 3
    printf '%s\n' --- "apiVersion: v1" "kind: Service" "metadata: {namespace: $namespace, name: $service}" \
        "spec:" ${cluster_address:+"  clusterIP: $cluster_address"} "  ports:"
    while read -r port protocol from to; do
        echo "  - {name: $port, protocol: $protocol, port: $from, targetPort: $to}"
    done < <(printf '%s\n' "$@")
    printf '%s\n' --- "apiVersion: discovery.k8s.io/v1" "kind: EndpointSlice" "addressType: IPv4" "metadata:" \
        "  namespace: $namespace" "  name: $service-bed" "  labels: {kubernetes.io/service-name: $service}" \
        "endpoints:" "- {addresses: [$address], conditions: {ready: true}}" "ports:"
    while read -r port protocol from to; do
        echo "- {name: $port, protocol: $protocol, port: $to}"
    done < <(printf '%s\n' "$@")
}

kueue_objects() {
    sed "s|@CA@|$(base64 -w 0 "$state/pki/ca.crt")|" "$(part_folder "kueue-$kueue")/objects.yaml"
    service_here kueue-system kueue-webhook-service "" "webhook TCP 443 9443"
}

dns_objects() {
    service_here kube-system kube-dns "$dns_service" "dns UDP 53 53" "dns-tcp TCP 53 53"
    cat <<OBJECTS
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "bed:coredns"}
rules:
- {apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "bed:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "bed:coredns"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "bed:coredns"}]
OBJECTS
}

# What Ingresses name, and what their controller may do.
ingress_objects() {
    cat <<OBJECTS
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: traefik}
spec: {controller: traefik.io/ingress-controller}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "bed:traefik"}
rules:
- {apiGroups: [""], resources: [services, secrets, nodes], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- {apiGroups: [networking.k8s.io], resources: [ingresses, ingressclasses], verbs: [get, list, watch]}
- {apiGroups: [networking.k8s.io], resources: [ingresses/status], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "bed:traefik"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "bed:traefik"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "bed:traefik"}]
OBJECTS
}
