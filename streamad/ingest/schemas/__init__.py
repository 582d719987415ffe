"""Messages with a registered schema (Avro, JSON Schema, Protobuf) as JSON would give them; pure, without I/O."""
