"""The tiering state machine: which table is due, which driver tiers it, and how its round ended."""
