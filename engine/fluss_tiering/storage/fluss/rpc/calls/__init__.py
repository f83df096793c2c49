"""The calls that tiering makes to a Fluss cluster, in the model's terms. A client sends what these functions make."""
