"""The recording folder: schema, reader, crash-safe writer."""
