{{/* Name of the application, in labels and in names of objects. */}}
{{- define "fairbind.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* Name of the objects: the release's when it has the application's name in it already. */}}
{{- define "fairbind.fullname" -}}
{{- $name := include "fairbind.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Name of the operator's ServiceAccount. It gets the operator's rights, so one that exists must be named. */}}
{{- define "fairbind.serviceAccountName" -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) }}
{{- fail "serviceAccount.create=false needs serviceAccount.name: the ServiceAccount that gets the operator's rights" }}
{{- end }}
{{- .Values.serviceAccount.name | default (include "fairbind.fullname" .) }}
{{- end }}

{{/* The image by its digest where one is given, else by its tag: some container runtimes take no reference with both. */}}
{{- define "fairbind.image" -}}
{{- $image := .Values.image }}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Labels that select the operator's pods; they never change. */}}
{{- define "fairbind.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fairbind.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of every object but the CRDs. */}}
{{- define "fairbind.labels" -}}
{{- include "fairbind.labelsAnd" (list . dict) }}
{{- end }}

{{/* The same and more, as (list context labels). The chart's own win over more, and those win over commonLabels. */}}
{{- define "fairbind.labelsAnd" -}}
{{- $context := index . 0 }}
{{- $own := include "fairbind.selectorLabels" $context | fromYaml }}
{{- $_ := set $own "helm.sh/chart" (include "fairbind.chart" $context) }}
{{- $_ := set $own "app.kubernetes.io/version" $context.Chart.AppVersion }}
{{- $_ := set $own "app.kubernetes.io/managed-by" $context.Release.Service }}
{{- $_ := set $own "app.kubernetes.io/part-of" "fairbind" }}
{{- toYaml (merge $own (index . 1) $context.Values.commonLabels) }}
{{- end }}

{{/* The chart and its version, as a label has it. */}}
{{- define "fairbind.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Only Helm 4 applies a hook to a CRD that exists already; Helm 3 would fail. */}}
{{- define "fairbind.upgradesCrds" -}}
{{- if and .Values.crds.upgrade (semverCompare ">=4.0.0-0" .Capabilities.HelmVersion.Version) }}true{{ end }}
{{- end }}

{{/* The Secret with the certificate of the operator's port; empty where it speaks HTTP or makes its own. */}}
{{- define "fairbind.tlsSecret" -}}
{{- if .Values.metrics.tls.enabled }}{{ .Values.metrics.tls.secretName }}{{ end }}
{{- end }}

{{/* The ServiceMonitor's endpoint. Fields of serviceMonitor.endpoint replace those that follow from other values. */}}
{{- define "fairbind.monitorEndpoint" -}}
{{- $fields := dict "port" "metrics" "path" "/metrics" "interval" .Values.serviceMonitor.interval "honorLabels" true }}
{{- range $field := list "scrapeTimeout" "relabelings" "metricRelabelings" }}
{{- with index $.Values.serviceMonitor $field }}
{{- $_ := set $fields $field . }}
{{- end }}
{{- end }}
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
{{- toYaml $fields }}
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

{{/* Constraints on where the operators' pods are: those given, each for these pods unless it selects others; else by node. */}}
{{- define "fairbind.topologySpreadConstraints" -}}
{{- $selector := dict "matchLabels" (include "fairbind.selectorLabels" . | fromYaml) }}
{{- $constraints := list }}
{{- range .Values.topologySpreadConstraints }}
{{- $constraint := deepCopy . }}
{{- if not (hasKey . "labelSelector") }}
{{- $_ := set $constraint "labelSelector" $selector }}
{{- end }}
{{- $constraints = append $constraints $constraint }}
{{- end }}
{{- if and (not $constraints) .Values.topologySpread.enabled }}
{{- /* Not by zone as well: kube-scheduler would ignore all nodes without a zone, and so put both on any one node. */}}
{{- $own := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" }}
{{- $constraints = list (merge $own (dict "matchLabelKeys" (list "pod-template-hash") "labelSelector" $selector)) }}
{{- end }}
{{- with $constraints }}{{ toYaml . }}{{ end }}
{{- end }}

{{/* Which values an object of ours was made of, so that an upgrade can tell whether they have changed since. */}}
{{- define "fairbind.valuesAnnotation" -}}
fairbind.io/values: {{ toJson . | sha256sum | trunc 16 | quote }}
{{- end }}

{{/*
The spec of an object, as (list context kind name spec). Where its values are those of the last upgrade, what the cluster has stays: an
administrator may have edited it, and an upgrade about something else must neither undo that nor fail because of it. Changed values
count; where they contradict an edit, Helm reports the conflict.
*/}}
{{- define "fairbind.keptSpec" -}}
{{- $spec := index . 3 }}
{{- $found := lookup "fairbind.io/v1alpha1" (index . 1) "" (index . 2) | default dict }}
{{- $made := include "fairbind.valuesAnnotation" $spec | fromYaml }}
{{- $noted := dig "metadata" "annotations" dict $found }}
{{- if eq (get $noted "fairbind.io/values") (get $made "fairbind.io/values") }}
{{- toYaml $found.spec }}
{{- else }}
{{- toYaml $spec }}
{{- end }}
{{- end }}
