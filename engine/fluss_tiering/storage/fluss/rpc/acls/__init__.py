"""The rights that calls need on a Fluss cluster with ACLs, and what is missing when a call is refused."""
