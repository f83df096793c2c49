"""The backend of a Fluss cluster: the server is the tiering service of the cluster's tables."""
