"""The steps of a plan: what is done for real, and what the model is told of it."""
