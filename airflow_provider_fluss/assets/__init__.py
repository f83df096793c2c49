"""Lake tables as assets of Airflow: their URIs, and the events of rounds that tiered them."""
