{{/* The namespaces in which the policies for pods hold. An empty selector would mean all of them. */}}
{{- define "fairbind.enforcedNamespaces" -}}
{{- with .Values.admission.namespaceSelector }}
{{- toYaml . }}
{{- else }}
matchLabels:
  fairbind.io/enforce: "true"
{{- end }}
{{- end }}

{{/* Of these, the ones whose pods fairbind binds itself; in gate mode a label says which they are. */}}
{{- define "fairbind.boundNamespaces" -}}
{{- $selector := include "fairbind.enforcedNamespaces" . | fromYaml }}
{{- if eq .Values.mode "gate" }}
{{- $bound := dict "key" "fairbind.io/mode" "operator" "In" "values" (list "bind") }}
{{- $_ := set $selector "matchExpressions" (append (default list $selector.matchExpressions) $bound) }}
{{- end }}
{{- toYaml $selector }}
{{- end }}

{{/* Of these, the ones whose pods take turns. */}}
{{- define "fairbind.gatedNamespaces" -}}
{{- $selector := include "fairbind.enforcedNamespaces" . | fromYaml }}
{{- $gated := dict "key" "fairbind.io/mode" "operator" "NotIn" "values" (list "bind") }}
{{- toYaml (set $selector "matchExpressions" (append (default list $selector.matchExpressions) $gated)) }}
{{- end }}

{{/* Whatever the selector says, nothing may keep the cluster itself or the operator from starting. */}}
{{- define "fairbind.exemptNamespaces" -}}
{{- list "kube-system" "kube-public" "kube-node-lease" .Release.Namespace | uniq | toJson }}
{{- end }}

{{/* The version in which the cluster serves MutatingAdmissionPolicy; without one the release fails. */}}
{{- define "fairbind.mutatingVersion" -}}
{{- $group := "admissionregistration.k8s.io" }}
{{- if .Capabilities.APIVersions.Has (printf "%s/v1/MutatingAdmissionPolicy" $group) }}v1
{{- else if .Capabilities.APIVersions.Has (printf "%s/v1beta1/MutatingAdmissionPolicy" $group) }}v1beta1
{{- else }}
{{- fail (printf "admission.assign.enabled or mode=gate: the cluster serves no MutatingAdmissionPolicy (Kubernetes 1.36 does; `helm template` takes --api-versions %s/v1/MutatingAdmissionPolicy). Let pods name their scheduler instead; admission.forbid.enabled refuses those that do not." $group) }}
{{- end }}
{{- end }}

{{/* The scheduling gate of gate mode. */}}
{{- define "fairbind.gate" -}}
fairbind.io/turn
{{- end }}

{{/* All scheduler names whose pods fairbind binds itself, as a list in CEL. */}}
{{- define "fairbind.schedulerNames" -}}
{{ prepend .Values.schedulerNames .Values.schedulerName | uniq | toJson }}
{{- end }}

{{/* Whether a pod waits for a decision of fairbind, in CEL: for all schedulers that it serves in this mode. */}}
{{- define "fairbind.waits" -}}
{{- if eq .Values.mode "extender" -}}
has(object.spec.schedulerName) && object.spec.schedulerName in {{ concat (include "fairbind.schedulerNames" . | fromJsonArray) .Values.extender.schedulerNames | toJson }}
{{- else if eq .Values.mode "gate" -}}
has(object.spec.schedulerName) && (object.spec.schedulerName in {{ include "fairbind.schedulerNames" . }}
|| (object.spec.schedulerName == '{{ .Values.gate.schedulerName }}'
&& has(object.spec.schedulingGates) && object.spec.schedulingGates.exists(gate, gate.name == '{{ include "fairbind.gate" . }}')))
{{- else -}}
has(object.spec.schedulerName) && object.spec.schedulerName in {{ include "fairbind.schedulerNames" . }}
{{- end }}
&& (!has(object.spec.nodeName) || object.spec.nodeName == '')
{{- end }}

{{/* Whether fairbind honours all that a pod carries, in CEL; it leaves others waiting (`find_unsupported` of the operator). */}}
{{- define "fairbind.isHonoured" -}}
(!has(object.spec.volumes) || !object.spec.volumes.exists(v, has(v.awsElasticBlockStore) || has(v.azureDisk) || has(v.cinder) || has(v.gcePersistentDisk) || has(v.iscsi)
  || has(v.portworxVolume) || has(v.rbd) || has(v.vsphereVolume)))
&& (!has(object.spec.resourceClaims) || object.spec.resourceClaims.size() == 0)
&& !has(object.spec.workloadRef)
{{- end }}

{{/* The counts above which the operator leaves a pod waiting (operator/fairbind/cluster/objects/budget.py). A test compares them. */}}
{{- define "fairbind.constraintBudget" -}}
selectorLabels: 64
tolerations: 64
labels: 256
nodeTerms: 64
nodeExpressions: 128
nodeValues: 512
hostPorts: 128
podTerms: 32
{{- end }}

{{/* Whether a new pod takes turns, in CEL: neither a static pod, which a kubelet announces, nor one of a DaemonSet. */}}
{{- define "fairbind.takesTurns" -}}
!(has(request.userInfo.groups) && 'system:nodes' in request.userInfo.groups)
&& request.userInfo.username != 'system:serviceaccount:kube-system:daemon-set-controller'
{{- end }}

{{/* That a pod has one of these PriorityClasses, as a validation. */}}
{{- define "fairbind.priorityValidation" -}}
- expression: >-
    !has(object.spec.priorityClassName) || object.spec.priorityClassName == ''
    || object.spec.priorityClassName in {{ toJson . }}
  messageExpression: >-
    'pods in namespace ' + request.namespace + ' may not have the priority class '
    + object.spec.priorityClassName + '; allowed are {{ join ", " . }}'
  message: pods in this namespace may not have this priority class; allowed are {{ join ", " . }}
  reason: Forbidden
{{- end }}
