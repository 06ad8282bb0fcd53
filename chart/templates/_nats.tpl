{{/* Secrets of the NATS server: of its users, and of its certificate. */}}
{{- define "interlink.natsUsers" -}}
{{ default (printf "%s-nats-users" (include "interlink.fullname" .)) .Values.nats.existingSecret }}
{{- end }}
{{- define "interlink.natsTls" -}}
{{ default (printf "%s-nats-tls" (include "interlink.fullname" .)) .Values.nats.tls.existingSecret }}
{{- end }}

{{/* What the settings of our programs say about NATS, for a role, or for the site condor: (list $ role). */}}
{{- define "interlink.natsSettings" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- include "interlink.checkMode" $root -}}
root: {{ $root.Values.subjectRoot }}
{{- if $root.Values.nats.enabled }}
{{- $tls := $root.Values.nats.tls.enabled }}
servers: ["{{ ternary "tls" "nats" $tls }}://{{ include "interlink.fullname" $root }}-nats:4222"]
inbox_prefix: _INBOX_{{ $role }}
user: {{ $role }}
password_file: /etc/interlink/nats/{{ $role }}
{{- if $tls }}
ca_file: /etc/interlink/nats/ca.crt
{{- end }}
{{- else }}
{{- $own := index $root.Values.externalNats $role }}
{{- if not $root.Values.externalNats.servers }}
{{- fail "externalNats.servers: say where the NATS server is, or run one with nats.enabled" }}
{{- end }}
servers: {{ toJson $root.Values.externalNats.servers }}
inbox_prefix: {{ $own.inboxPrefix }}
{{- with $own.user }}
user: {{ . }}
{{- end }}
{{ $own.kind }}_file: /etc/interlink/nats/{{ $own.key }}
{{- if $root.Values.externalNats.caSecret }}
ca_file: /etc/interlink/nats/ca.crt
{{- end }}
{{- end }}
{{- end }}

{{/* The files that these settings name, as a volume: (list $ role). */}}
{{- define "interlink.natsVolume" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
name: nats
projected:
  defaultMode: 0440
  sources:
    {{- if $root.Values.nats.enabled }}
    - secret:
        name: {{ include "interlink.natsUsers" $root }}
        items: [{key: {{ $role }}, path: {{ $role }}}]
    {{- if $root.Values.nats.tls.enabled }}
    - secret:
        name: {{ include "interlink.natsTls" $root }}
        items: [{key: ca.crt, path: ca.crt}]
    {{- end }}
    {{- else }}
    {{- $own := index $root.Values.externalNats $role }}
    - secret:
        name: {{ required (printf "externalNats.%s.secretName: say which Secret proves who it is" $role) $own.secretName }}
        items: [{key: {{ $own.key }}, path: {{ $own.key }}}]
    {{- with $root.Values.externalNats.caSecret }}
    - secret:
        name: {{ . }}
        items: [{key: ca.crt, path: ca.crt}]
    {{- end }}
    {{- end }}
{{- end }}

{{/* What users may publish and subscribe to, by the table in files/subjects.json: (list $ role) and (list $ site).
     Answers to what another account has asked go below _R_. */}}
{{- define "interlink.natsRole" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $publish := list -}}
{{- $subscribe := list -}}
{{- $answers := 0 -}}
{{- range $root.Files.Get "files/subjects.json" | fromJsonArray -}}
{{- $subject := printf "%s.%s%s" $root.Values.subjectRoot .kind (repeat (int .tokens) ".*") -}}
{{- if has $role .publishers }}{{ $publish = append $publish $subject }}{{ end -}}
{{- if has $role .subscribers -}}
{{- $subscribe = append $subscribe $subject -}}
{{- $answers = max $answers (int .answers) -}}
{{- end -}}
{{- end -}}
{{- if $answers }}{{ $publish = append $publish "_R_.>" }}{{ end -}}
publish: {{ toRawJson $publish }}
subscribe: {{ toRawJson (append $subscribe (printf "_INBOX_%s.>" $role)) }}
{{- end }}

{{- define "interlink.natsSite" -}}
{{- $root := index . 0 -}}
{{- $site := index . 1 -}}
{{- $publish := list -}}
{{- $everywhere := list -}}
{{- $subscribe := list -}}
{{- $table := $root.Files.Get "files/subjects.json" | fromJsonArray -}}
{{- range $table -}}
{{- if and (has "site" .subscribers) (eq (int .tokens) 0) -}}
{{- $everywhere = append $everywhere (printf "%s.%s" $root.Values.subjectRoot .kind) -}}
{{- end -}}
{{- end -}}
{{- range $pool := $site.pools -}}
{{- range $row := $table -}}
{{- if gt (int .tokens) 0 -}}
{{- $subject := printf "%s.%s.%s%s" $root.Values.subjectRoot .kind $pool (repeat (int (sub .tokens 1)) ".*") -}}
{{- if has "site" .publishers }}{{ $publish = append $publish $subject }}{{ end -}}
{{- if has "site" .subscribers }}{{ $subscribe = append $subscribe (ternary (printf "%s %s" $subject $pool) $subject .queued) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
publish: {{ toRawJson (append $publish "_R_.>") }}
subscribe: {{ toRawJson (concat $everywhere (list (printf "_INBOX_%s.>" $site.name)) $subscribe) }}
{{- end }}

{{/* One user in the server's words: (list who permissions), where who proves it by a variable or a public key. */}}
{{- define "interlink.natsUser" -}}
{{- $may := index . 1 -}}
{
  {{ index . 0 }}
  permissions: {
    publish: {allow: {{ toRawJson $may.publish }}}
    subscribe: {allow: {{ toRawJson $may.subscribe }}}
  }
}
{{- end }}

{{/* What passes between two accounts, as JSON, seen from one side (site or cluster): (list $ side other pools). Who is
     asked exports a service, who publishes exports a stream. Without pools, what is for every site. */}}
{{- define "interlink.natsCrossings" -}}
{{- $root := index . 0 -}}
{{- $side := index . 1 -}}
{{- $other := index . 2 -}}
{{- $exports := list -}}
{{- $imports := list -}}
{{- range $pool := default (list "") (index . 3) -}}
{{- range $root.Files.Get "files/subjects.json" | fromJsonArray -}}
{{- if eq (eq $pool "") (eq (int .tokens) 0) -}}
{{- $isService := gt (int .answers) 0 -}}
{{- $kind := ternary "service" "stream" $isService -}}
{{- $words := list $root.Values.subjectRoot .kind -}}
{{- if $pool }}{{ $words = append $words $pool }}{{ end -}}
{{- if eq (int .tokens) 2 }}{{ $words = append $words "*" }}{{ end -}}
{{- $subject := join "." $words -}}
{{- $exporter := ternary "site" "cluster" (has "site" (ternary .subscribers .publishers $isService)) -}}
{{- if ne $exporter $side -}}
{{- $imports = append $imports (dict $kind (dict "account" $other "subject" $subject)) -}}
{{- else -}}
{{- $export := dict $kind $subject -}}
{{- if $pool }}{{ $_ := set $export "accounts" (list $other) }}{{ end -}}
{{- if $isService }}{{ $_ := set $export "threshold" (printf "%ds" (int .silent_s)) }}{{ end -}}
{{- if gt (int .answers) 1 }}{{ $_ := set $export "response" "stream" }}{{ end -}}
{{- $exports = append $exports $export -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ dict "exports" $exports "imports" $imports | toRawJson }}
{{- end }}

{{/* The exports and imports of an account in the server's words: (list crossings...). */}}
{{- define "interlink.natsExchange" -}}
{{- range $kind := list "exports" "imports" }}
{{ $kind }}: [
  {{- range $ }}
  {{- range get . $kind }}
  {{ toRawJson . }}
  {{- end }}
  {{- end }}
]
{{- end }}
{{- end }}

{{/* The users of the cluster itself, and those of sites, as JSON. With condor.enabled the only site is the release's. */}}
{{- define "interlink.natsRoles" -}}
{{- toJson (ternary (list "plugin" "operator") (list "plugin" "kueue" "operator") .Values.condor.enabled) -}}
{{- end }}
{{- define "interlink.natsSites" -}}
{{- $own := list (dict "name" "condor" "pools" (list .Values.condor.pool)) -}}
{{- toJson (ternary $own .Values.nats.sites .Values.condor.enabled) -}}
{{- end }}

{{/* Who shall be refused before the server would be puzzled. */}}
{{- define "interlink.checkSites" -}}
{{- $names := include "interlink.natsRoles" . | fromJsonArray -}}
{{- $pools := dict -}}
{{- range include "interlink.natsSites" . | fromJsonArray -}}
{{- if has .name $names -}}
{{- fail (printf "nats.sites: there are two users called %s" .name) -}}
{{- end -}}
{{- if eq .name "cluster" }}{{ fail "nats.sites: cluster is the account of the cluster itself: call the site another name" }}{{ end -}}
{{- $names = append $names .name -}}
{{- $site := .name -}}
{{- range .pools -}}
{{- if hasKey $pools . -}}
{{- fail (printf "nats.sites: the pool %s belongs to %s and to %s" . (get $pools .) $site) -}}
{{- end -}}
{{- $_ := set $pools . $site -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The users with passwords: all but sites with keys. */}}
{{- define "interlink.natsPasswords" -}}
{{- $names := include "interlink.natsRoles" . | fromJsonArray -}}
{{- range include "interlink.natsSites" . | fromJsonArray }}{{ if not .nkey }}{{ $names = append $names .name }}{{ end }}{{ end -}}
{{ toJson $names }}
{{- end }}

{{/* A password in the server's environment: (list $ variable user). In quotes, as the server reads a value. */}}
{{- define "interlink.natsPassword" -}}
- name: RAW_{{ index . 1 }}
  valueFrom:
    secretKeyRef: {name: {{ include "interlink.natsUsers" (index . 0) }}, key: {{ index . 2 }}}
- name: PASSWORD_{{ index . 1 }}
  value: '"$(RAW_{{ index . 1 }})"'
{{- end }}
