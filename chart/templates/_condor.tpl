{{/* Whoever mixes both ways to use the chart shall hear of it before anything else is missed. */}}
{{- define "interlink.checkMode" -}}
{{- if .Values.condor.enabled -}}
{{- include "interlink.checkCondor" . -}}
{{- else -}}
{{- $keys := list "oauth2ProxyIamIssuer" "iamClientId" "iamClientSecret" "oauth2ProxyCookieSecret" "backendIamIssuer" "backendIamClientId" "backendIamClientSecret" "pluginCondorPool" "pluginCondorScheduler" "certManagerEmailAddress" -}}
{{- range $key := $keys -}}
{{- if index $.Values $key }}{{ fail (printf "%s: is of use with condor.enabled only" $key) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "interlink.checkCondor" -}}
{{- $v := .Values -}}
{{- if not $v.nats.enabled }}{{ fail "nats.enabled: with condor.enabled the plugin and its submitter talk over the NATS server of the release" }}{{ end -}}
{{- if $v.nats.sites }}{{ fail "nats.sites: with condor.enabled the submitter of the release is the only site; sites of others want a release of their own" }}{{ end -}}
{{- if $v.masterQueue.enabled }}{{ fail "masterQueue.enabled: with condor.enabled there is no operator for Kueue in the release; run it where the virtual nodes are" }}{{ end -}}
{{- if ne (toJson $v.virtualNodes) (toJson (list (dict "name" "interlink"))) }}{{ fail "virtualNodes: with condor.enabled virtual nodes are in other clusters; docs/install.md says how they find this one" }}{{ end -}}
{{- if $v.test.pool }}{{ fail "test.pool: with condor.enabled there is no virtual node in the release to which a pod could go" }}{{ end -}}
{{- $_ := required "hostname: say by which name virtual kubelets will reach the interLink API server" $v.hostname -}}
{{- $_ := required "oauth2ProxyIamIssuer: say whose tokens virtual kubelets bring, as in https://iam.example.org/" $v.oauth2ProxyIamIssuer -}}
{{- $_ := required "iamClientId: say which client of oauth2ProxyIamIssuer the tokens have to be for" $v.iamClientId -}}
{{- $_ := required "backendIamIssuer: say who gives the tokens by which the computing element knows the submitter" $v.backendIamIssuer -}}
{{- $_ := required "backendIamClientId: say which client of backendIamIssuer the submitter is" $v.backendIamClientId -}}
{{- $_ := required "pluginCondorPool: name the collector of the computing element, as in ce.example.org:9618" $v.pluginCondorPool -}}
{{- $_ := required "pluginCondorScheduler: name the schedd of the computing element, as in ce.example.org" $v.pluginCondorScheduler -}}
{{- $secret := $v.oauth2ProxyCookieSecret -}}
{{- if and $secret (not (regexMatch "^(.{16}|.{24}|.{32}|[A-Za-z0-9_-]{22}|[A-Za-z0-9_-]{43}=?)$" $secret)) -}}
{{- fail "oauth2ProxyCookieSecret: must have 16, 24 or 32 characters, or so many bytes in URL-safe base64; empty: one is made" -}}
{{- end -}}
{{- end }}

{{/* A secret as a source of a volume or variable: (list $ value own key), where the value may be in a Secret of the
user's instead, whose name and key value + "From" has; own is the Secret that the chart makes. */}}
{{- define "interlink.secretOf" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $from := index $root.Values (printf "%sFrom" $name) -}}
{{- $given := index $root.Values $name -}}
{{- if and $given $from.name }}{{ fail (printf "%s and %sFrom: give one of them" $name $name) }}{{ end -}}
{{- if $from.name -}}
name: {{ $from.name }}
key: {{ required (printf "%sFrom.key: say which key of the Secret %s it is" $name $from.name) $from.key }}
{{- else -}}
name: {{ index . 2 }}
key: {{ index . 3 }}
{{- end -}}
{{- end }}

{{/* The plugin and interLink's API server of this mode, as a virtual node has them. They look for no orphans: the pods
are in other clusters, and none of them would be found in this one. */}}
{{- define "interlink.condorNode" -}}
{{- $own := dict "name" "api" "defaultPool" .Values.condor.pool "plugin" (dict "orphans" false) -}}
{{- toYaml (mergeOverwrite (deepCopy .Values.virtualNode) $own) -}}
{{- end }}

{{/* oauth2-proxy.cfg: whoever brings a token that is good is let through, all others get a 401. */}}
{{- define "interlink.oauth2ProxySettings" -}}
reverse_proxy = true
redirect_url = "https://{{ .Values.hostname }}/oauth2/callback"
skip_jwt_bearer_tokens = true
force_json_errors = true
email_domains = ["*"]
request_logging = {{ .Values.oauth2Proxy.verbose }}
silence_ping_logging = true
{{- end }}

{{/* oauth2-proxy.yaml: where tokens come from, and where requests go.

interLink closes connections that were idle for 30 seconds, which is just when the virtual kubelet pings: a ping that
meets such an end would fail, and the node would be NotReady for half a minute. With the header X-Idempotency-Key, Go
sends a request without a body again. Only this form of OAuth2-proxy's configuration can set a header. */}}
{{- define "interlink.oauth2ProxyRoutes" -}}
{{- $own := .Values.oauth2Proxy -}}
{{- $oidc := dict
  "issuerURL" .Values.oauth2ProxyIamIssuer
  "audienceClaims" (list "aud")
  "extraAudiences" $own.audiences
  "emailClaim" "email"
  "userIDClaim" "sub"
  "groupsClaim" $own.groupsClaim -}}
{{- $provider := dict
  "id" "issuer"
  "provider" "oidc"
  "clientID" .Values.iamClientId
  "clientSecretFile" "/etc/interlink/oauth2-proxy/client-secret"
  "allowedGroups" $own.allowedGroups
  "oidcConfig" $oidc -}}
{{- if $own.caSecret }}{{ $_ := set $provider "caFiles" (list "/etc/interlink/ca/ca.crt") }}{{ end -}}
{{- $upstream := dict "id" "interlink" "path" "/" "uri" "http://127.0.0.1:3000/" "flushInterval" "1s" "timeout" "125s" -}}
{{- $key := dict "name" "X-Idempotency-Key" "values" (list (dict "value" (b64enc "ping"))) -}}
{{- toYaml (dict
  "server" (dict "BindAddress" "0.0.0.0:4180")
  "upstreamConfig" (dict "upstreams" (list $upstream))
  "injectRequestHeaders" (list $key)
  "providers" (list $provider)) -}}
{{- end }}

{{/* submitter.yaml: one pool, whose jobs go to the computing element with their files. */}}
{{- define "interlink.submitterSettings" -}}
{{- $v := .Values -}}
{{- $remote := dict "schedd" $v.pluginCondorScheduler "collector" $v.pluginCondorPool -}}
{{- if $v.condor.caSecret }}{{ $_ := set $remote "ca_file" "/etc/interlink/ca/condor.crt" }}{{ end -}}
{{- $tokens := dict
  "issuer" $v.backendIamIssuer
  "client_id" $v.backendIamClientId
  "client_secret_file" "/etc/interlink/backend/client-secret"
  "audience" (default $v.pluginCondorPool $v.backendIamAudience)
  "scopes" $v.backendIamScopes -}}
{{- if $v.backendIamCaSecret }}{{ $_ := set $tokens "ca_file" "/etc/interlink/ca/issuer.crt" }}{{ end -}}
{{- if $v.backendIamRefreshTokenFrom.name }}{{ $_ := set $tokens "refresh_token_file" "/etc/interlink/backend/refresh-token" }}{{ end -}}
{{- $pool := dict
  "name" $v.condor.pool
  "directory" "/var/lib/interlink/pool"
  "backend" "htcondor"
  "options" (dict "shared" false "export" list "remote" $remote "tokens" $tokens)
  "policy" (dict "namespaces" (list "*")) -}}
{{- toYaml (dict
  "nats" (include "interlink.natsSettings" (list . "condor") | fromYaml)
  "pools" (list (mergeOverwrite $pool (deepCopy $v.condor.settings)))
  "logging" $v.logging) -}}
{{- end }}
