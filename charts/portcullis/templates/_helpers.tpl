{{- /*
Labels and annotations of an object. Called with the root, the component, and labels and annotations of its own if it has any.
*/ -}}
{{- define "mcp-operator.metadata" -}}
{{- $root := index . 0 -}}
{{- $own := rest (rest .) | first | default dict -}}
labels:
  app.kubernetes.io/component: {{ index . 1 }}
  {{- include "mcp-operator.selector" $root | nindent 2 }}
  app.kubernetes.io/part-of: mcp-operator
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
{{- define "mcp-operator.selector" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/name: mcp-operator
{{- end }}

{{- /*
Arguments that are the MCP operator's own. Those of every operator are in operator.yaml.
*/ -}}
{{- define "mcp-operator.args" -}}
{{- with .Values.runner.image }}
- --runner-image={{ .repository }}{{ with .digest }}@{{ . }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- if ne .Values.admission "deny" }}
- --admission={{ .Values.admission }}
{{- end }}
{{- if .Values.restrictWorkloads }}
- --restrict-workloads
{{- end }}
{{- if ne .Values.runner.host "0.0.0.0" }}
- --proxy-host={{ .Values.runner.host }}
{{- end }}
{{- with .Values.runner.imageMirrors }}
- --image-mirrors={{ join "," . }}
{{- end }}
{{- with .Values.runner.imagePullSecrets }}
- --default-image-pull-secrets={{ join "," . }}
{{- end }}
{{- with .Values.runner.allowedEndpointCidrs }}
- --allow-endpoint-cidr={{ join "," . }}
{{- end }}
{{- with .Values.runner.middleware }}
- --runner-middleware={{ join "," . }}
{{- end }}
{{- with .Values.runner.allowedOrigins }}
- --allowed-origins={{ join "," . }}
{{- end }}
{{- with .Values.runner.trustedProxies }}
- --trusted-proxies={{ join "," . }}
{{- end }}
{{- with .Values.runner.egressProxy }}
- --egress-proxy={{ . }}
{{- end }}
{{- with .Values.runner.noProxy }}
- --no-proxy={{ join "," . }}
{{- end }}
{{- with .Values.runner.caBundle }}
- --proxy-ca-bundle={{ . }}
{{- end }}
{{- with .Values.runner.defaultRedis }}
{{- with .address }}
- --default-redis-address={{ . }}
{{- end }}
{{- with .secret }}
- --default-redis-secret={{ . }}
{{- end }}
{{- if ne .secretKey "redis-password" }}
- --default-redis-secret-key={{ .secretKey }}
{{- end }}
{{- if .tls.enabled }}
- --default-redis-tls
{{- end }}
{{- with .tls.caSecret }}
- --default-redis-ca-secret={{ . }}
{{- end }}
{{- if ne .tls.caKey "ca.crt" }}
- --default-redis-ca-key={{ .tls.caKey }}
{{- end }}
{{- end }}
{{- end }}
