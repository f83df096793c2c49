"""Tiers a table by each way to submit. Copy the way that you need, with names of your own."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_provider_fluss import FlussTieringOperator, Way, ways

DOC = """
### Tier a table by another operator

Needs the provider of the operator, the folder that `fluss-tiering package --to` has filled, and `driver_server` in the
extra of the connection `fluss_default`.
"""

BUCKET = "s3://example-bucket/fluss-tiering"
WAYS: dict[str, Way] = {
    "spark_submit": ways.spark_submit(BUCKET, "4.1", conn_id="spark_default", deploy_mode="cluster"),
    "spark_kubernetes": ways.spark_kubernetes(
        "local:///opt/fluss-tiering",
        "4.1",
        {"spark.jars.packages": ""},  # docs/deploy/Containerfile.spark has them
        namespace="spark",
        image="registry.example.com/spark-fluss:1",
        template_spec={
            "spark": {
                "spec": {
                    "sparkVersion": "4.1.2",
                    "driver": {
                        "cores": 1,
                        "memory": "2g",
                        "serviceAccount": "spark",
                        # With driver_token_file in the extra of the connection.
                        "secrets": [{"name": "fluss-tiering", "path": "/etc/fluss-tiering", "secretType": "Generic"}],
                    },
                    "executor": {"instances": 2, "cores": 1, "memory": "2g"},
                }
            }
        },
    ),
    "emr_serverless": ways.emr_serverless(
        BUCKET,
        "3.5",
        {"spark.executor.memory": "4g"},
        application_id="00f1example",
        execution_role_arn="arn:aws:iam::123456789012:role/tiering",
        deferrable=True,
    ),
    "emr_steps": ways.emr_steps(BUCKET, "3.5", job_flow_id="j-EXAMPLE"),
    "dataproc_batch": ways.dataproc_batch(
        "gs://example-bucket/fluss-tiering",
        "3.5",
        project_id="example",
        region="europe-west3",
        batch={"runtime_config": {"version": "2.3", "container_image": "registry.example.com/spark-fluss:1"}},
    ),
    "livy": ways.livy("hdfs:///apps/fluss-tiering", "3.5", livy_conn_id="livy_default", executor_memory="4g"),
    "databricks_submit_run": ways.databricks_submit_run(
        "/Volumes/main/default/fluss-tiering",
        "3.5",
        new_cluster={"spark_version": "15.4.x-scala2.12", "node_type_id": "m5d.large", "num_workers": 2},
        libraries=[{"pypi": {"package": "fluss-tiering[spark]"}}],
    ),
}

for name, way in WAYS.items():
    with DAG(
        dag_id=f"fluss_submit_{name}",
        schedule="*/10 * * * *",
        catchup=False,
        max_active_runs=1,
        tags=["example", "fluss", "iceberg"],
        doc_md=DOC,
        params={"table": Param("fluss.orders", type="string", description="DATABASE.TABLE of the table")},
        default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    ):
        FlussTieringOperator(task_id="tier", tables=["{{ params.table }}"], submit=way)
