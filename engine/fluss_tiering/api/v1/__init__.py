"""Generated gRPC stubs; see `protos/`."""
