{{/* The containers that lead from interLink to NATS: (list $ node pod). As sidecars they begin one after the other
before what talks to them, and end after it: a virtual kubelet that met none of them would give up the pod that it has
just then. */}}
{{- define "interlink.chain" -}}
{{- $root := index . 0 -}}
{{- $node := index . 1 -}}
{{- $pod := index . 2 -}}
- name: plugin
  restartPolicy: Always
  image: {{ include "interlink.image" (list $root $node.plugin.image) }}
  {{- include "interlink.container" (list $root $node.plugin $pod) | nindent 2 }}
  env:
    - {name: INTERLINK_PLUGIN_CONFIG, value: /etc/interlink/config/plugin.yaml}
    {{- with $node.plugin.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: health, containerPort: 8081}
  startupProbe:
    httpGet: {path: /healthz, port: health}
    periodSeconds: 2
    failureThreshold: 60
  livenessProbe:
    httpGet: {path: /healthz, port: health}
    periodSeconds: 15
    timeoutSeconds: 5
    failureThreshold: 4
  readinessProbe:
    httpGet: {path: /readyz, port: health}
    periodSeconds: 5
    timeoutSeconds: 5
  volumeMounts:
    - {name: config, mountPath: /etc/interlink/config, readOnly: true}
    - {name: nats, mountPath: /etc/interlink/nats, readOnly: true}
    {{- if $node.plugin.orphans }}
    - {name: orphans, mountPath: /etc/interlink/account, readOnly: true}
    {{- end }}
    {{- if (include "interlink.redisPassword" $root) }}
    - {name: redis, mountPath: /etc/interlink/redis, readOnly: true}
    {{- end }}
    - {name: socket, mountPath: /run/interlink}
    - {name: state, mountPath: /var/lib/interlink}
    - {name: tmp, mountPath: /tmp, subPath: plugin}
    {{- with $node.plugin.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
# It listens where no probe reaches it: on a socket without a file, which a killed server would have left, or on
# loopback. Whoever talks to it tells whether it answers.
- name: interlink
  restartPolicy: Always
  image: {{ include "interlink.image" (list $root $node.interlink.image) }}
  {{- include "interlink.container" (list $root $node.interlink $pod) | nindent 2 }}
  env:
    - {name: INTERLINKCONFIGPATH, value: /etc/interlink/config/interlink.yaml}
    {{- with $node.interlink.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumeMounts:
    - {name: config, mountPath: /etc/interlink/config, readOnly: true}
    - {name: socket, mountPath: /run/interlink}
    - {name: tmp, mountPath: /tmp, subPath: interlink}
    {{- with $node.interlink.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* What these containers mount: (list $ node name). */}}
{{- define "interlink.chainVolumes" -}}
{{- $root := index . 0 -}}
{{- $node := index . 1 -}}
{{- $name := index . 2 -}}
- name: config
  configMap: {name: {{ $name }}}
- {{- include "interlink.natsVolume" (list $root "plugin") | nindent 2 }}
{{- if $node.plugin.orphans }}
- name: orphans
  secret:
    secretName: {{ include "interlink.fullname" $root }}-orphans
    defaultMode: 0440
    items: [{key: token, path: token}, {key: ca.crt, path: ca.crt}]
{{- end }}
{{- if (include "interlink.redisPassword" $root) }}
- name: redis
  secret:
    secretName: {{ $root.Values.externalRedis.passwordSecret | default (include "interlink.redisSecret" $root) }}
    defaultMode: 0440
    items: [{key: password, path: password}]
{{- end }}
- name: socket
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
- name: state
  {{- if $node.plugin.state.existingClaim }}
  persistentVolumeClaim: {claimName: {{ $node.plugin.state.existingClaim }}}
  {{- else }}
  emptyDir: {sizeLimit: 256Mi}
  {{- end }}
{{- end }}

{{/* Not empty if there is a Redis that asks for a password. */}}
{{- define "interlink.redisPassword" -}}
{{- if or (and .Values.redis.enabled (not .Values.externalRedis.url)) .Values.externalRedis.passwordSecret }}yes{{ end -}}
{{- end }}
