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
