"""The tiering state machine: which table is due, who tiers it, how its round ended."""
