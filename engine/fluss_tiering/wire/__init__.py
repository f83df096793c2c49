"""Conversions between the model and the API's messages and gRPC statuses, in both directions.

Messages are checked here: missing parts, negative ids and unknown enum values are refused with INVALID_REQUEST. The
server and the client therefore work with values of the model only.

This package is private: other programs import from `fluss_tiering`.
"""
