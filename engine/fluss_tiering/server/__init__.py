"""The tiering server: managers without I/O, their store, and the gRPC services over them."""
