"""What maintenance of a lake table would save, and Iceberg's actions that do it for chosen partitions."""
