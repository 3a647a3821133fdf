{{/* Name of the objects: the release's when it says fairbind already. */}}
{{- define "fairbind.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Labels that select the operator's pods; they never change. */}}
{{- define "fairbind.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "fairbind.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "fairbind.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: fairbind
{{- end }}

{{/* Only Helm 4 applies a hook to a CRD that exists already; Helm 3 would fail. */}}
{{- define "fairbind.upgradesCrds" -}}
{{- if and .Values.crds.upgrade (semverCompare ">=4.0.0-0" .Capabilities.HelmVersion.Version) }}true{{ end }}
{{- end }}

{{/* The Secret with the certificate of the operator's port; empty where it speaks HTTP or makes its own. */}}
{{- define "fairbind.tlsSecret" -}}
{{- if .Values.metrics.tls.enabled }}{{ .Values.metrics.tls.secretName }}{{ end }}
{{- end }}

{{/* Fields of the ServiceMonitor's endpoint that follow from the metrics' values, unless serviceMonitor.endpoint has them. */}}
{{- define "fairbind.monitorEndpoint" -}}
{{- $fields := dict }}
{{- $given := .Values.serviceMonitor.endpoint | default dict }}
{{- if .Values.metrics.tls.enabled }}
{{- $_ := set $fields "scheme" "https" }}
{{- if not (include "fairbind.tlsSecret" .) }}
{{- $_ := set $fields "tlsConfig" (dict "insecureSkipVerify" true) }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.authentication.enabled (not .Values.metrics.authentication.audiences) }}
{{- if not (or (hasKey $given "authorization") (hasKey $given "bearerTokenSecret")) }}
{{- $_ := set $fields "bearerTokenFile" "/var/run/secrets/kubernetes.io/serviceaccount/token" }}
{{- end }}
{{- end }}
{{- range $key, $value := $given }}
{{- $_ := set $fields $key $value }}
{{- end }}
{{- with $fields }}{{ toYaml . }}{{ end }}
{{- end }}

{{/*
Tolerations of the operator's pods. Kubernetes lets pods wait 300 s on a node that is dead, unless they say otherwise. The first
toleration that fits a taint counts, so these come first; one of `tolerations` that names the same taint replaces them.
*/}}
{{- define "fairbind.tolerations" -}}
{{- $tolerations := list }}
{{- if ne .Values.nodeFailureTolerationSeconds nil }}
{{- range $taint := list "node.kubernetes.io/not-ready" "node.kubernetes.io/unreachable" }}
{{- $named := false }}
{{- range $.Values.tolerations }}
{{- if eq (.key | default "") $taint }}{{ $named = true }}{{ end }}
{{- end }}
{{- if not $named }}
{{- $seconds := int64 $.Values.nodeFailureTolerationSeconds }}
{{- $tolerations = append $tolerations (dict "key" $taint "operator" "Exists" "effect" "NoExecute" "tolerationSeconds" $seconds) }}
{{- end }}
{{- end }}
{{- end }}
{{- with concat $tolerations .Values.tolerations }}{{ toYaml . }}{{ end }}
{{- end }}
