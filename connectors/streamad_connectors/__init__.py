"""The connectors of streamad: files, Kafka, memory and standard output, found by entry point."""
