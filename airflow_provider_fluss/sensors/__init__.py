"""Sensors: wait for the outcome of tiering rounds."""
