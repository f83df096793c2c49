"""All that happens to a call before its request is known: TLS, who calls, limits, and the audit log."""
