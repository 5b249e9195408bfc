{{- /* Labels of an object, called with the root and the component. */ -}}
{{- define "kettle-operator.labels" -}}
app.kubernetes.io/component: {{ index . 1 }}
{{ include "kettle-operator.selector" (index . 0) }}
app.kubernetes.io/part-of: kettle-operator
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end }}

{{- /* Labels that select the operator's Pods. */ -}}
{{- define "kettle-operator.selector" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/name: kettle-operator
{{- end }}
