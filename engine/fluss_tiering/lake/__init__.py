"""Lake tables: the protocol and, in folders of their own, the formats that implement it."""
