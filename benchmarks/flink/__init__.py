"""The peer benchmark: Fluss's Flink tiering service and this project tier the same tables."""
