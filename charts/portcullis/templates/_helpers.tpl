{{- /*
Arguments that are the MCP operator's own. Those of every operator are in the generated Deployment.
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
{{- with .Values.runner.caBundle }}
- --proxy-ca-bundle={{ . }}
{{- end }}
{{- end }}
