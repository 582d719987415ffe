"""Writing to Kafka: transactions, the progress topic, plain sinks."""
