{{/* Names. A StatefulSet's name is part of labels of its pods, so it stays below 53 characters. */}}
{{- define "streamad.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "streamad.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full := default $both .Values.fullnameOverride | lower | replace "." "-" -}}
{{- /* A Service's name begins with a letter. */ -}}
{{- ternary (printf "streamad-%s" $full) $full (regexMatch "^[0-9]" $full) | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "streamad.labels" -}}
{{ include "streamad.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "streamad.selector" -}}
app.kubernetes.io/name: {{ include "streamad.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "streamad.serviceAccount" -}}
{{- default (ternary (include "streamad.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "streamad.registryPath" -}}
{{- default "/var/lib/streamad/registry" .Values.registry.url -}}
{{- end -}}

{{/* Seconds of a duration of plant.yaml (10s, 250ms, 5m, 30), rounded up. */}}
{{- define "streamad.seconds" -}}
{{- $text := toString . | trim -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?([eE][+-]?[0-9]{1,2})?" $text -}}
{{- $unit := trimPrefix $number $text | trim | lower | default "s" -}}
{{- $factor := get (dict "us" 0.000001 "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0) $unit -}}
{{- if not (and $number $factor) -}}
{{- fail (printf "plant: run.stop_timeout: %s is no duration: write for example 10s" $text) -}}
{{- end -}}
{{- mulf (float64 $number) $factor | ceil | int -}}
{{- end -}}

{{/* The plant as JSON, checked for what Kubernetes needs of it; streamad itself checks the rest as it starts. */}}
{{- define "streamad.plant" -}}
{{- if not (trim .Values.plant) -}}{{- fail "plant: give the text of plant.yaml: --set-file plant=plant.yaml" -}}{{- end -}}
{{- $plant := fromYaml .Values.plant -}}
{{- if hasKey $plant "Error" -}}{{- fail (printf "plant: is not YAML: %s" (get $plant "Error")) -}}{{- end -}}
{{- $url := dig "source" "url" "" $plant -}}
{{- if not (hasPrefix "kafka:" $url) -}}
{{- fail (printf "plant: source.url: %q: workers on Kubernetes share the partitions of a Kafka topic: write kafka://HOST:PORT/TOPIC" $url) -}}
{{- end -}}
{{- range $role, $url := dig "sinks" dict $plant }}
{{- if and (kindIs "string" $url) (not (regexMatch "^[a-z][a-z0-9+.-]*:" (trimPrefix "file:" $url))) -}}
{{- fail (printf "plant: sinks.%s: %q: pods share no files: write kafka:///TOPIC" $role $url) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.learn.enabled (not (kindIs "map" (get $plant "learning"))) -}}
{{- fail "learn.enabled: the plant has no section learning: write `learning: {}` into plant.yaml" -}}
{{- end -}}
{{- if and (or .Values.learn.enabled .Values.web.enabled) (not (hasPrefix "kafka:" (dig "marks" "" $plant))) -}}
{{- fail "plant: marks: the learner and the page are pods of their own: write marks: kafka:///TOPIC" -}}
{{- end -}}
{{- if and .Values.web.enabled (not .Values.web.users.secret) (not (dig "web" "auth" "proxy" false $plant)) -}}
{{- fail "web.enabled: say who may open the page: web.users.secret in the values, or web.auth.proxy in plant.yaml" -}}
{{- end -}}
{{- if and .Values.notify.enabled (not (dig "notify" "receivers" false $plant)) -}}
{{- fail "notify.enabled: the plant names no notify.receivers" -}}
{{- end -}}
{{- toJson $plant -}}
{{- end -}}

{{/* Seconds that a pod may take to stop: what is being judged is finished and committed within run.stop_timeout. */}}
{{- define "streamad.grace" -}}
{{- $plant := include "streamad.plant" . | fromJson -}}
{{- add 30 (include "streamad.seconds" (dig "run" "stop_timeout" "10s" $plant) | int) -}}
{{- end -}}

{{- define "streamad.podMetadata" -}}
labels:
  {{- include "streamad.selector" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with .root.Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
annotations:
  checksum/plant: {{ .root.Values.plant | sha256sum }}
  {{- with .root.Values.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end -}}

{{/* What all pods share: who runs it, and on which nodes. */}}
{{- define "streamad.podSpec" -}}
serviceAccountName: {{ include "streamad.serviceAccount" .root | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
terminationGracePeriodSeconds: {{ include "streamad.grace" .root }}
{{- with .part.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .part.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .part.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "streamad.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{- define "streamad.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Environment of every container. Nothing but volumes and /tmp is writable, so that caches of libraries go there. */}}
{{- define "streamad.env" -}}
- {name: HOME, value: /tmp}
- {name: STREAMAD_MODEL__REGISTRY, value: {{ include "streamad.registryPath" .root | quote }}}
{{- if .root.Values.registry.url }}
- {name: STREAMAD_MODEL__CACHE, value: {{ .copies }}}
{{- end }}
{{- $plant := include "streamad.plant" .root | fromJson }}
{{- if kindIs "map" (get $plant "learning") }}
- {name: STREAMAD_LEARNING__PROCESS, value: elsewhere}
- {name: STREAMAD_LEARNING__STORE, value: /var/lib/streamad/state/inliers}
{{- end }}
{{- with .root.Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "streamad.envFrom" -}}
{{- with .Values.envFrom }}
envFrom: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "streamad.mounts" -}}
- {name: plant, mountPath: /etc/streamad, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- range .root.Values.secrets }}
- {name: {{ printf "secret-%s" .path | quote }}, mountPath: {{ printf "/run/secrets/%s" .path | quote }}, readOnly: true}
{{- end }}
{{- if not .root.Values.registry.url }}
- {name: registry, mountPath: /var/lib/streamad/registry, readOnly: {{ ne .registry "writes" }}}
{{- else if .copies }}
- {name: copies, mountPath: {{ .copies }}}
{{- end }}
{{- end -}}

{{- define "streamad.volumes" -}}
- name: plant
  configMap: {name: {{ include "streamad.fullname" .root | quote }}}
- name: tmp
  emptyDir: {}
{{- range .root.Values.secrets }}
- name: {{ printf "secret-%s" .path | quote }}
  secret: {secretName: {{ .name | quote }}, defaultMode: 0440}
{{- end }}
{{- if not .root.Values.registry.url }}
- name: registry
  persistentVolumeClaim:
    claimName: {{ default (printf "%s-registry" (include "streamad.fullname" .root)) .root.Values.registry.existingClaim | quote }}
    readOnly: {{ ne .registry "writes" }}
{{- else if .copies }}
# Copies of versions, from which a container starts while the store is away; they go with the pod.
- name: copies
  emptyDir: {}
{{- end }}
{{- end -}}

{{/* Probes of /livez and /readyz at the port of the metrics. A start loads a model, which may take a while. */}}
{{- define "streamad.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  timeoutSeconds: 5
{{- end -}}
