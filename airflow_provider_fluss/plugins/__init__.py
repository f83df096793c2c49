"""What the provider adds to Airflow's own user interface."""
