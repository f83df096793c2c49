"""Rows in files and as printed lines: CSV, JSON lines and Parquet."""
