"""The judges, what they cannot read, and the comparisons of what they read with the model."""
