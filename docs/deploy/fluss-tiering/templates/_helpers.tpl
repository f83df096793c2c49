{{/* The name of all objects: that of the release. */}}
{{- define "fluss-tiering.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "fluss-tiering.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fluss-tiering.labels" -}}
{{ include "fluss-tiering.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* What follows the name of a server in its address. */}}
{{- define "fluss-tiering.domain" -}}
{{ include "fluss-tiering.name" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* The addresses that clients need, separated by commas. */}}
{{- define "fluss-tiering.addresses" -}}
{{- range $number := until (int .Values.replicas) }}
{{- if $number }},{{ end }}{{ include "fluss-tiering.name" $ }}-{{ $number }}.{{ include "fluss-tiering.domain" $ }}:9133
{{- end }}
{{- end }}

{{/* The environment variable of a setting. */}}
{{- define "fluss-tiering.variable" -}}
FLUSS_TIERING_{{ . | replace "." "_" | replace "-" "_" | upper }}
{{- end }}

{{/* Refuses values with which the server would not start, or two servers would not work together. */}}
{{- define "fluss-tiering.check" -}}
{{- $insecure := eq (toString (index .Values.settings "allow-insecure")) "true" }}
{{- if not (or $insecure .Values.tls.secretName) }}
{{- fail "tls.secretName is missing: expected a secret with tls.crt, tls.key and ca.crt; to serve without TLS, set settings.allow-insecure to true" }}
{{- end }}
{{- if not (or $insecure .Values.tokens.secretName .Values.access.secretName) }}
{{- fail "tokens.secretName and access.secretName are missing: expected one of them, so that the server asks callers who they are; to answer everybody, set settings.allow-insecure to true" }}
{{- end }}
{{- if and .Values.tls.clientCertificates (not .Values.tls.secretName) }}
{{- fail "tls.clientCertificates is set without tls.secretName: expected it too" }}
{{- end }}
{{- if eq (int .Values.replicas) 2 }}
{{- if not (index .Values.secretSettings "store-url") }}
{{- fail "secretSettings.store-url is missing: expected the PostgreSQL database that two servers share, as {name: SECRET, key: KEY}" }}
{{- end }}
{{- if not (or (index .Values.settings "fluss") (index .Values.secretSettings "fluss") .Values.storage.existingClaim) }}
{{- fail "storage.existingClaim is missing: expected a claim that both servers can write to, which the embedded storage needs; with a Fluss cluster, set settings.fluss" }}
{{- end }}
{{- end }}
{{- end }}
