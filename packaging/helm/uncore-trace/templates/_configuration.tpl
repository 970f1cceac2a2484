{{/* The file agent.toml. */}}
{{- define "uncore-trace.configuration" -}}
cluster = {{ .Values.cluster | toJson }}

[record]
{{- with .Values.record.groups }}
groups = {{ toJson . }}
{{- end }}
{{- with .Values.record.events }}
events = {{ toJson . }}
{{- end }}
{{- with .Values.record.metrics }}
metrics = {{ toJson . }}
{{- end }}
tick = {{ .Values.record.tick | toJson }}
interval = {{ .Values.record.interval | toJson }}
method = {{ .Values.record.method | toJson }}
{{- if not (kindIs "invalid" .Values.record.cgroupDepth) }}
cgroup-depth = {{ .Values.record.cgroupDepth }}
{{- end }}
{{- if .Values.record.canary }}
canary = true
{{- end }}
{{- with .Values.identity.trusted }}

[identity]
trusted = {{ toJson . }}
{{- end }}
{{- if .Values.ring.enabled }}

[ring]
directory = {{ printf "%s/ring" .Values.stateDirectory | toJson }}
part = {{ .Values.ring.part | toJson }}
keep = {{ .Values.ring.keep | toString | toJson }}
mode = {{ .Values.ring.mode | toJson }}

[kept]
{{- with .Values.kept.directory }}
directory = {{ toJson . }}
{{- end }}
quota = {{ .Values.kept.quota | toJson }}
pause = {{ .Values.kept.pause | toJson }}
{{- end }}

[rollup]
directory = {{ printf "%s/rollup" .Values.stateDirectory | toJson }}
window = {{ .Values.rollup.window | toJson }}
owners = {{ .Values.rollup.owners }}
keep = {{ .Values.rollup.keep | toJson }}
mode = {{ .Values.rollup.mode | toJson }}

[metrics]
{{- if .Values.metrics.enabled }}
listen = {{ printf "%s:%d" .Values.metrics.address (int .Values.metrics.port) | toJson }}
beyond-loopback = true
{{- else }}
listen = "127.0.0.1:{{ .Values.metrics.port }}"
{{- end }}
owners = {{ .Values.metrics.owners }}
{{- with .Values.upload }}
{{- if .enabled }}

[upload]
url = {{ .url | toJson }}
{{- if .endpoint }}
endpoint = {{ .endpoint | toJson }}
{{- end }}
region = {{ .region | toJson }}
queue = {{ .queue | toJson }}
every = {{ .every | toJson }}
keep-local = {{ .keepLocal }}
{{- end }}
{{- end }}
{{- with .Values.otlp.endpoint }}

[otlp]
endpoint = {{ toJson . }}
interval = {{ $.Values.otlp.interval | toJson }}
{{- end }}
{{- range .Values.triggers }}

[[trigger]]
{{- range $key, $value := . }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The same without the values that the agent applies when it reads its configuration again (docs/agent.md, "Signals"). If
only these change, the pods stay.
*/}}
{{- define "uncore-trace.restart-configuration" -}}
{{- $values := deepCopy .Values }}
{{- $_ := set $values "kept" (omit $values.kept "quota" "pause") }}
{{- $_ := set $values "rollup" (omit $values.rollup "window" "owners" "keep") }}
{{- $_ := set $values "metrics" (omit $values.metrics "owners") }}
{{- include "uncore-trace.configuration" (dict "Values" $values) }}
{{- end }}
