{{/* What all objects of the release begin with. */}}
{{- define "interlink.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Labels that never change, of a component: (list $ "nats"). */}}
{{- define "interlink.selector" -}}
app.kubernetes.io/name: {{ default (index . 0).Chart.Name (index . 0).Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* All labels of an object of a component: (list $ "nats"). */}}
{{- define "interlink.labels" -}}
{{ include "interlink.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The metadata of an object: (list $ component name), and a map of annotations of its own when there is a fourth. */}}
{{- define "interlink.metadata" -}}
{{- $own := dict -}}
{{- if gt (len .) 3 }}{{ $own = index . 3 }}{{ end -}}
name: {{ index . 2 }}
labels:
  {{- include "interlink.labels" (list (index . 0) (index . 1)) | nindent 2 }}
{{- with merge (deepCopy $own) (index . 0).Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* An image of ours or of others: (list $ image). */}}
{{- define "interlink.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $name := $image.repository -}}
{{- if not (contains "/" $name) -}}
{{- $registry := required "images.registry: say where your images of this project are, as in registry.example.org/interlink; docs/install.md says how to make them" $root.Values.images.registry -}}
{{- $name = printf "%s/%s" (trimSuffix "/" $registry) $name -}}
{{- end -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ default (default $root.Chart.AppVersion $root.Values.images.tag) $image.tag }}
{{- end -}}
{{- end }}

{{/* The keys of "pod" that hold for a component: (list $ its own). Maps are merged, lists replaced. */}}
{{- define "interlink.pod" -}}
{{- toYaml (mergeOverwrite (deepCopy (index . 0).Values.pod) (deepCopy (index . 1))) -}}
{{- end }}

{{/* The metadata of a pod: (list $ component pod checksums). */}}
{{- define "interlink.podMetadata" -}}
labels:
  {{- include "interlink.labels" (list (index . 0) (index . 1)) | nindent 2 }}
  {{- with (index . 2).labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (deepCopy (index . 3)) (index . 2).annotations (index . 0).Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What the specs of all pods have: (list $ component pod), and sidecars when there is a fourth. */}}
{{- define "interlink.podSpec" -}}
{{- $root := index . 0 -}}
{{- $pod := index . 2 -}}
{{- $sidecars := "" -}}
{{- if gt (len .) 3 }}{{ $sidecars = index . 3 }}{{ end -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml $pod.securityContext | nindent 2 }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $pod $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if $pod.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $selector := dict "matchLabels" (include "interlink.selector" (list $root (index . 1)) | fromYaml) }}
  {{- range $pod.topologySpreadConstraints }}
  - {{- toYaml (merge (deepCopy .) (dict "labelSelector" $selector)) | nindent 4 }}
  {{- end }}
{{- end }}
{{- if or $pod.extraInitContainers $sidecars }}
initContainers:
  {{- with $pod.extraInitContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $sidecars }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What all containers have besides what they run: (list $ container pod). */}}
{{- define "interlink.container" -}}
imagePullPolicy: {{ (index . 0).Values.images.pullPolicy }}
securityContext:
  {{- toYaml (index . 2).containerSecurityContext | nindent 2 }}
{{- with (index . 1).resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A ServiceAccount: (list $ component name). */}}
{{- define "interlink.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "interlink.metadata" (list (index . 0) (index . 1) (index . 2) (index . 0).Values.serviceAccount.annotations) | nindent 2 }}
automountServiceAccountToken: false
{{- end }}

{{/* The user name of a ServiceAccount of the release: (list $ name). */}}
{{- define "interlink.user" -}}
system:serviceaccount:{{ (index . 0).Release.Namespace }}:{{ index . 1 }}
{{- end }}

{{/* The binding of a policy and its beginning, for the users that it is about: (list $ component name users). */}}
{{- define "interlink.admissionPolicy" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "interlink.metadata" (list (index . 0) (index . 1) (index . 2)) | nindent 2 }}
spec:
  policyName: {{ index . 2 }}
  validationActions: [Deny]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  {{- include "interlink.metadata" (list (index . 0) (index . 1) (index . 2)) | nindent 2 }}
spec:
  failurePolicy: Fail
  matchConditions:
    - name: account-of-the-release
      expression: request.userInfo.username in {{ index . 3 | toJson }}
  matchConstraints:
{{- end }}

{{/* From where API servers ask virtual kubelets for logs: a list, as JSON. Their addresses are in the Service of all
clusters; where templates cannot look into the cluster, there are none. */}}
{{- define "interlink.apiServerCidrs" -}}
{{- $cidrs := .Values.networkPolicies.apiServerCidrs -}}
{{- if not $cidrs -}}
{{- range (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "").items -}}
{{- if eq (index (default (dict) .metadata.labels) "kubernetes.io/service-name" | default "") "kubernetes" -}}
{{- $length := ternary 128 32 (eq .addressType "IPv6") -}}
{{- range .endpoints }}{{ range .addresses }}{{ $cidrs = append $cidrs (printf "%s/%d" . $length) }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson (default list $cidrs) -}}
{{- end }}

{{/* A role and its binding: a map of root, component, kind, name, namespace, rules, account. */}}
{{- define "interlink.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  {{- include "interlink.metadata" (list .root .component .name) | nindent 2 }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  {{- include "interlink.metadata" (list .root .component .name) | nindent 2 }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* Names of cluster-wide objects, which two releases may not share. */}}
{{- define "interlink.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "interlink.fullname" .) }}
{{- end }}

{{/* The token of an account, as pods find it in its usual place, as a volume. */}}
{{- define "interlink.tokenVolume" -}}
name: account
projected:
  defaultMode: 0440
  sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3607}
    - configMap:
        name: kube-root-ca.crt
        items: [{key: ca.crt, path: ca.crt}]
    - downwardAPI:
        items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end }}

{{/* A label selector for namespaces, or all of them, for NetworkPolicies. */}}
{{- define "interlink.fromNamespaces" -}}
{{- if . }}
from:
  {{- range . }}
  - namespaceSelector:
      {{- toYaml . | nindent 6 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The virtual nodes, as JSON, and whether there is an operator for Kueue: with condor.enabled there are none. */}}
{{- define "interlink.nodes" -}}
{{- toJson (ternary list .Values.virtualNodes .Values.condor.enabled) -}}
{{- end }}
{{- define "interlink.withKueue" -}}
{{- if and .Values.kueueNats.enabled (not .Values.condor.enabled) }}yes{{ end -}}
{{- end }}
