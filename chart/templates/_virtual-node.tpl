{{/* plugin.yaml of a virtual node: (list $ node). */}}
{{- define "interlink.pluginSettings" -}}
{{- $root := index . 0 -}}
{{- $node := index . 1 -}}
{{- $settings := dict
  "nats" (include "interlink.natsSettings" (list $root "plugin") | fromYaml)
  "listen" "unix:///run/interlink/plugin.sock"
  "health_listen" "0.0.0.0:8081"
  "state_directory" "/var/lib/interlink"
  "logging" $root.Values.logging -}}
{{- with $node.defaultPool }}{{ $_ := set $settings "default_pool" . }}{{ end -}}
{{- if $node.plugin.orphans -}}
{{- $_ := set $settings "orphans" (dict
  "api_server" "https://kubernetes.default.svc"
  "token_file" "/etc/interlink/account/token"
  "ca_file" "/etc/interlink/account/ca.crt") -}}
{{- end -}}
{{- if or $root.Values.redis.enabled $root.Values.externalRedis.url -}}
{{- $redis := dict "prefix" (printf "%s-%s" (include "interlink.fullname" $root) $node.name) -}}
{{- if $root.Values.externalRedis.url -}}
{{- $_ := set $redis "url" $root.Values.externalRedis.url -}}
{{- if $root.Values.externalRedis.passwordSecret }}{{ $_ := set $redis "password_file" "/etc/interlink/redis/password" }}{{ end -}}
{{- else -}}
{{- $_ := set $redis "url" (printf "redis://%s-redis:6379" (include "interlink.fullname" $root)) -}}
{{- $_ := set $redis "password_file" "/etc/interlink/redis/password" -}}
{{- end -}}
{{- $_ := set $settings "redis" $redis -}}
{{- end -}}
{{- toYaml (mergeOverwrite $settings (deepCopy $node.plugin.settings)) -}}
{{- end }}

{{/* The virtual kubelet's own configuration: (list $ node). */}}
{{- define "interlink.virtualKubeletSettings" -}}
{{- $node := index . 1 -}}
{{- $labels := list -}}
{{- range $key, $value := $node.nodeLabels }}{{ $labels = append $labels (printf "%s=%s" $key $value) }}{{ end -}}
{{- $taints := list -}}
{{- range $node.nodeTaints -}}
{{- $taints = append $taints (dict "Key" .key "Value" (default "" .value) "Effect" .effect) -}}
{{- end -}}
{{- $accelerators := list -}}
{{- range $name, $amount := $node.capacity.accelerators -}}
{{- $accelerators = append $accelerators (dict "ResourceType" $name "Available" (toString $amount)) -}}
{{- end -}}
{{- $resources := dict "CPU" $node.capacity.cpu "Memory" $node.capacity.memory "Pods" $node.capacity.pods -}}
{{- if $accelerators }}{{ $_ := set $resources "Accelerators" $accelerators }}{{ end -}}
{{- toYaml (dict
  "InterlinkURL" "unix://@interlink"
  "InterlinkPort" "0"
  "VerboseLogging" $node.virtualKubelet.verbose
  "ErrorsOnlyLogging" false
  "Resources" $resources
  "NodeLabels" $labels
  "NodeTaints" $taints
  "HTTP" (dict "Insecure" true)
  "KubeletHTTP" (dict "Insecure" true)
  "DisableCSR" true
  "DisableProjectedVolumes" (not $node.projectedVolumes)) -}}
{{- end }}

{{/* interLink's configuration: (list $ node address port). */}}
{{- define "interlink.apiSettings" -}}
InterlinkAddress: {{ index . 2 | quote }}
InterlinkPort: {{ index . 3 | quote }}
SidecarURL: "unix:///run/interlink/plugin.sock"
SidecarPort: "0"
VerboseLogging: {{ (index . 1).interlink.verbose }}
ErrorsOnlyLogging: false
DataRootFolder: /tmp
{{- end }}

{{/* Roles of a virtual kubelet: (list $ node name). */}}
{{- define "interlink.virtualKubeletRoles" -}}
{{- $root := index . 0 -}}
{{- $node := index . 1 -}}
{{- $name := index . 2 -}}
{{- $all := $root.Files.Get "files/virtual-kubelet-rules.yaml" | fromYaml -}}
{{- $rules := $all.cluster -}}
{{- if $node.projectedVolumes }}{{ $rules = concat $rules $all.tokens }}{{ end -}}
{{- range $all.node }}{{ $rules = append $rules (set . "resourceNames" (list $node.name)) }}{{ end -}}
{{- $lease := list (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "verbs" (list "create")) -}}
{{- range $all.lease }}{{ $lease = append $lease (set . "resourceNames" (list $node.name)) }}{{ end -}}
{{- $clusterName := printf "%s-%s" (include "interlink.clusterName" $root) $node.name -}}
{{ include "interlink.role" (dict "root" $root "component" (printf "virtual-node-%s" $node.name) "kind" "ClusterRole" "name" $clusterName "rules" $rules "account" $name) }}
---
{{ include "interlink.role" (dict "root" $root "component" (printf "virtual-node-%s" $node.name) "kind" "Role" "name" $clusterName "namespace" "kube-node-lease" "rules" $lease "account" $name) }}
{{- end }}
