"""The gRPC port of the server: its listener, its services, and what each call is answered with."""
