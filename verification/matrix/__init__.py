"""Runs a real round on each combination of Spark, Iceberg, Java and Python that this machine can have."""
