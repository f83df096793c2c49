"""A table of the embedded storage: its folder, its definition file and its buckets."""
