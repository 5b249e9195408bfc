{{- /*
The name of the installation, which all others follow. Dynamo's chart makes the same one; its guide calls it <release> or
<release>-dynamo-operator. So configurations have the names that the chart gives them, <this>-validating and
<this>-validating-<namespace>, and where the guide says <release>-validating, this name is meant.
*/ -}}
{{- define "dynamo-operator.fullname" -}}
{{- if contains "dynamo-operator" .Release.Name -}}
{{ .Release.Name }}
{{- else -}}
{{ .Release.Name }}-dynamo-operator
{{- end }}
{{- end }}

{{- /*
The one namespace that is served, or nothing for all.
*/ -}}
{{- define "dynamo-operator.restriction" -}}
{{- with .Values.namespaceRestriction }}
{{- if .enabled }}{{ coalesce .targetNamespace .namespace $.Release.Namespace }}{{ end }}
{{- end }}
{{- end }}

{{- /*
Who makes the certificates. checks.yaml refuses two at once.
*/ -}}
{{- define "dynamo-operator.certificates" -}}
{{- if .Values.webhook.certManager.enabled -}}
cert-manager
{{- else if .Values.webhook.certificateSecret.external -}}
external
{{- else if eq .Values.webhook.rotation "operator" -}}
automatic
{{- else -}}
hooks
{{- end }}
{{- end }}

{{- /*
Labels and annotations of an object. Called with the root, the component, and labels and annotations of its own if it has any.
*/ -}}
{{- define "dynamo-operator.metadata" -}}
{{- $root := index . 0 -}}
{{- $own := rest (rest .) | first | default dict -}}
labels:
  app.kubernetes.io/component: {{ index . 1 }}
  {{- include "dynamo-operator.selector" $root | nindent 2 }}
  app.kubernetes.io/part-of: dynamo-operator
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  {{- with merge (dict) ($own.labels | default dict) ($root.Values.commonLabels | default dict) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) ($own.annotations | default dict) ($root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /*
Labels that select the operator's Pods.
*/ -}}
{{- define "dynamo-operator.selector" -}}
app.kubernetes.io/instance: {{ include "dynamo-operator.fullname" . | quote }}
app.kubernetes.io/name: dynamo-operator
{{- end }}

{{- /*
The flags by which a process knows that it belongs to this installation.
*/ -}}
{{- define "dynamo-operator.installation" -}}
- --release={{ include "dynamo-operator.fullname" . }}
{{- with include "dynamo-operator.restriction" . }}
- --restrict-to-namespace={{ . }}
{{- end }}
- --service-name={{ include "dynamo-operator.fullname" . }}-webhook-service
- --cluster-domain={{ .Values.kubernetesClusterDomain }}
{{- with include "dynamo-operator.certificates" . }}
{{- if ne . "automatic" }}
- --certificates={{ . }}
{{- end }}
{{- end }}
- --certificate-secret={{ .Values.webhook.certificateSecret.name }}
{{- end }}

{{- /*
Settings of the webhooks that differ from those that they are registered with, as flags of the operator, and of 'doctor'.
A restricted release selects its one namespace.
*/ -}}
{{- define "dynamo-operator.settings" -}}
{{- with .Values.webhook -}}
{{- if ne .failurePolicy "Fail" }}
--failure-policy={{ .failurePolicy }}
{{- end }}
{{- if ne (int .timeoutSeconds) 10 }}
--timeout-seconds={{ .timeoutSeconds }}
{{- end }}
{{- if and .namespaceSelector (not (include "dynamo-operator.restriction" $)) }}
--namespace-selector={{ toJson .namespaceSelector }}
{{- end }}
{{- with .objectSelector }}
--object-selector={{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{- /*
Arguments that are this operator's own. Those of every operator are in operator.yaml.
*/ -}}
{{- define "dynamo-operator.args" -}}
{{- with .Values.operatorAccount }}
{{- if .name }}
- --operator-account={{ .name }}
- --operator-account-namespace={{ .namespace | default $.Release.Namespace }}
{{- end }}
{{- end }}
{{- end }}
