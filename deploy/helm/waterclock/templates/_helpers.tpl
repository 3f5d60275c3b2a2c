{{/* The labels of the pods of a component, by which everything selects them: include with (list . "worker"). */}}
{{- define "waterclock.labels" -}}
{app.kubernetes.io/name: waterclock, app.kubernetes.io/instance: {{ (index . 0).Release.Name }}{{ with index . 1 }}, app.kubernetes.io/component: {{ . }}{{ end }}}
{{- end }}

{{/* What is the same for the pods of workers and of serve: include with (list . "worker" .Values.worker). */}}
{{- define "waterclock.pod" -}}
{{- $root := index . 0 }}{{ $component := index . 1 }}{{ $values := index . 2 -}}
automountServiceAccountToken: false
{{- with $values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with $values.affinity }}
affinity: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "waterclock.labels" (list $root $component) }}
{{- end }}

{{/* The labels and annotations of those pods: include with (list . "worker" .Values.worker 9090). */}}
{{- define "waterclock.podMetadata" -}}
{{- $root := index . 0 }}{{ $component := index . 1 }}{{ $values := index . 2 }}{{ $port := index . 3 -}}
labels:
  app.kubernetes.io/name: waterclock
  app.kubernetes.io/instance: {{ $root.Release.Name }}
  app.kubernetes.io/component: {{ $component }}
{{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $annotations := merge (dict) $values.podAnnotations }}
{{- if not $root.Values.monitoring.enabled }}
{{- $annotations = merge $annotations (dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString $port)) }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What is the same for their containers. */}}
{{- define "waterclock.container" -}}
{{- $root := index . 0 }}{{ $values := index . 1 -}}
image: {{ $root.Values.image.repository }}:{{ $root.Values.image.tag }}
{{- with $root.Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
# No limit on CPU: what is throttled is late.
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
