"""The chart of deploy/helm, rendered by Helm and checked against the schemas of Kubernetes and of custom resources."""
