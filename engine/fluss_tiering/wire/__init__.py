"""The API's messages and gRPC statuses <-> the model; each conversion stands in one place, both directions together.

What comes off the wire is checked here (missing parts, negative ids, unknown enum values) and refused with
INVALID_REQUEST, so that server and client work with values of the model alone.

This package is private: other programs import from `fluss_tiering`.
"""
