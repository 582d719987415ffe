"""Reading from Kafka: the source, time ranges, subscriptions."""
