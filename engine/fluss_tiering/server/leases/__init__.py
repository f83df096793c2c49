"""KV snapshot leases: who pins which snapshot until when."""
