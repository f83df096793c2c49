"""Reading a cluster's logs and KV snapshots from tablet servers and from remote files."""
