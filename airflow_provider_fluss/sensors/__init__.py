"""The sensor that waits for the outcome of tiering rounds."""
