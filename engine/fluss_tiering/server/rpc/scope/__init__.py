"""What callers see of tables and leases if their roles are for some tables only: everything else does not exist."""
