"""The page "Lake tiering": HTML that Airflow's API server makes from what the tiering server knows."""
