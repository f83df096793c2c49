"""The notifier that tells which tables were not tiered, and why."""
