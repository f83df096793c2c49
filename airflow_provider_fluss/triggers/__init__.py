"""The trigger in which a deferred sensor waits."""
