"""Connections to a Kafka cluster: options, security, errors, admin questions."""
