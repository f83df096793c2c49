"""The commands for lake tables: most of them start Spark, and `lake_conf` says how others read the tables."""
