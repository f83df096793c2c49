"""Example DAGs. Airflow shows them if its setting `core.load_examples` is True; copy one to change it."""
