"""Generated messages of Fluss's own protocol; see `protos/`."""
