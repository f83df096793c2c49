"""The LakeTiering service: its calls, by what they are about."""
