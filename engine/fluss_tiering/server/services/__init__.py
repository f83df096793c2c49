"""The gRPC services: they read requests, call the core, and write answers."""
