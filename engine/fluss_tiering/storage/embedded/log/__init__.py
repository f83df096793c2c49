"""The log of a bucket: segment files, their encoding, reading and recovery."""
