"""Messages in Avro's binary encoding."""
