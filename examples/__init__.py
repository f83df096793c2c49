"""Programs that show the project at work on real data."""
