"""The Spark application that tiers tables, and the data source with which users read Fluss tables in Spark.

This package is private: people start the application with `fluss-tiering tier` or `spark-submit`, and read tables with
`format("fluss")` and the SQL catalog.
"""
