{{- define "uncore-trace.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "uncore-trace.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "uncore-trace.labels" -}}
{{ include "uncore-trace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Directories of the node with the names of containers and pods, and with the socket of the kubelet. */}}
{{- define "uncore-trace.names" -}}
{{- $of := dict
  "containerd" (list "/run/containerd/io.containerd.runtime.v2.task" "/var/log/pods")
  "k3s" (list "/run/k3s/containerd/io.containerd.runtime.v2.task" "/var/log/pods")
  "crio" (list "/var/lib/containers/storage/overlay-containers" "/run/containers/storage/overlay-containers" "/var/log/pods")
  "docker" (list "/var/lib/docker/containers" "/var/log/pods")
}}
{{- $paths := get $of .Values.containerRuntime | default list }}
{{- if .Values.podResources }}
{{- $paths = append $paths "/var/lib/kubelet/pod-resources" }}
{{- end }}
{{- dict "paths" $paths | toJson }}
{{- end }}

{{- define "uncore-trace.account" -}}
{{- $own := ternary (include "uncore-trace.name" .) "default" .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default $own }}
{{- end }}

{{/* The address of the pod, which is the node's with hostNetwork; the configuration names it. */}}
{{- define "uncore-trace.address" -}}
env:
  - name: POD_IP
    valueFrom:
      fieldRef:
        fieldPath: status.podIP
{{- end }}
