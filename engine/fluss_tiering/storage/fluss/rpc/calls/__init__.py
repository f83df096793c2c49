"""The calls that tiering makes to a Fluss cluster, in the model's terms; each is made here and sent by a client."""
