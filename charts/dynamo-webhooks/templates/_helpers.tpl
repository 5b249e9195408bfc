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
What the generated templates read, made of this chart's values. Each of them begins with it, so it may run many times; it
renders nothing.
*/ -}}
{{- define "dynamo-operator.values" -}}
{{- $name := include "dynamo-operator.fullname" . }}
{{- $restriction := include "dynamo-operator.restriction" . }}
{{- $webhook := .Values.webhook }}
{{- $issuer := $webhook.certManager.issuerRef }}
{{- $_ := set .Values "names" (dict
  "release" $name
  "service" (printf "%s-webhook-service" $name)
  "secret" $webhook.certificateSecret.name
) }}
{{- $_ := set .Values "restrictToNamespace" $restriction }}
{{- $_ := set .Values "replicas" (int .Values.controllerManager.replicas) }}
{{- $_ := set .Values "clusterDomain" .Values.kubernetesClusterDomain }}
{{- /* With the default of this chart, each webhook keeps what it is registered with: the same, but for those that only warn. */}}
{{- $_ := set .Values "webhooks" (dict
  "enabled" $webhook.enabled
  "failurePolicy" (ternary "" $webhook.failurePolicy (eq $webhook.failurePolicy "Fail"))
  "timeoutSeconds" (ternary 0 (int $webhook.timeoutSeconds) (eq (int $webhook.timeoutSeconds) 10))
  "namespaceSelector" (ternary (dict) $webhook.namespaceSelector (ne $restriction ""))
  "objectSelector" $webhook.objectSelector
) }}
{{- $_ := set .Values "certificates" (dict
  "mode" (include "dynamo-operator.certificates" .)
  "validity" (printf "%dd" (int $webhook.certificateValidity))
  "caBundle" ($webhook.caBundle | nospace | b64dec)
  "issuer" (dict "kind" $issuer.kind "name" $issuer.name)
) }}
{{- /* Kinds serve all namespaces: they are the cluster-wide installation's. */}}
{{- $_ := set .Values "crds" (dict "enabled" (and .Values.crds.enabled (eq $restriction "")) "keep" .Values.crds.keep) }}
{{- end }}

{{- /*
Arguments that are this operator's own. Those of every operator are in the generated templates.
*/ -}}
{{- define "dynamo-operator.args" -}}
{{- with .Values.operatorAccount }}
{{- if .name }}
- --operator-account={{ .name }}
- --operator-account-namespace={{ .namespace | default $.Release.Namespace }}
{{- end }}
{{- end }}
{{- end }}
