"""The peer benchmark: the same tables tiered by Fluss's Flink tiering service and by us."""
