"""The gRPC services: each checks its request, calls the managers or the storage, and words the answer."""
