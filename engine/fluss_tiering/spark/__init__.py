"""The Spark application that tiers tables, and what users read Fluss with in Spark."""
