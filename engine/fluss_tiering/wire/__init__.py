"""Between the model and the wire: protobuf messages and gRPC statuses, in one place for client and server."""
