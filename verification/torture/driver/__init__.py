"""The process with the Spark session: it runs rounds, and may be killed or stopped, with all its workers."""
