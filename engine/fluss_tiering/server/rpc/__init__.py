"""The gRPC port of the server: its listener, its services and the answers to their calls."""
