"""What Airflow reads about this provider, by the entry point `apache_airflow_provider`."""

from __future__ import annotations

from typing import Any, Final

_INTEGRATION: Final = "Apache Fluss"


def get_provider_info() -> dict[str, Any]:
    """Return the metadata of the provider in the format of Airflow's `provider_info.schema.json`."""
    return {
        "package-name": "airflow-provider-fluss",
        "name": "Apache Fluss",
        "description": "Tier `Apache Fluss <https://fluss.apache.org/>`__ tables into Apache Iceberg with Spark.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://fluss.apache.org/",
                "tags": ["apache"],
            }
        ],
        "hooks": [_modules("airflow_provider_fluss.hooks.fluss")],
        "operators": [
            _modules(
                "airflow_provider_fluss.operators.lease",
                "airflow_provider_fluss.operators.maintenance",
                "airflow_provider_fluss.operators.round",
                "airflow_provider_fluss.operators.tiering",
            ),
        ],
        "sensors": [_modules("airflow_provider_fluss.sensors.status")],
        "triggers": [_modules("airflow_provider_fluss.triggers.status", "airflow_provider_fluss.triggers.tiered")],
        "asset-uris": [
            {
                "schemes": ["fluss"],
                "handler": "airflow_provider_fluss.assets.table.sanitize_uri",
                "factory": "airflow_provider_fluss.assets.table.create_asset",
                "to_openlineage_converter": "airflow_provider_fluss.assets.table.convert_asset_to_openlineage",
            }
        ],
        "notifications": ["airflow_provider_fluss.notifications.tiering.FlussTieringNotifier"],
        "extra-links": ["airflow_provider_fluss.links.LakeTieringLink", "airflow_provider_fluss.links.SparkUiLink"],
        "connection-types": [
            {
                "connection-type": "fluss",
                "hook-class-name": "airflow_provider_fluss.hooks.fluss.FlussHook",
                "hook-name": "Apache Fluss tiering",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login"],
                    "relabeling": {"host": "Tiering server", "password": "Token"},
                    "placeholders": {"host": "localhost", "port": "9133"},
                },
                "conn-fields": {
                    "timeout": {
                        "label": "Timeout",
                        "description": "Deadline of a call to the server in seconds, 30 when empty",
                        "schema": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 86400},
                    },
                    "token_file": _path("Token file", "File with the token, in place of the token above"),
                    "tls": _flag("TLS", "Whether calls are encrypted and the server proves who it is"),
                    "tls_ca": _path("Authority", "Certificates of the server's authority in PEM"),
                    "tls_cert": _path("Client certificate", "Certificate in PEM, for a server that asks for one"),
                    "tls_key": _path("Client key", "Key of the client certificate in PEM"),
                    "driver_server": {
                        "label": "Server for drivers on a cluster",
                        "description": "HOST:PORT of the server for Spark's drivers on a cluster, if it is another one",
                        "schema": {"type": ["string", "null"]},
                    },
                    "driver_token_file": {
                        "label": "Token file of drivers on a cluster",
                        "description": "File with the token. A path on each machine that may run such a driver",
                        "schema": {"type": ["string", "null"], "pattern": "^(/.*)?$"},
                    },
                    "driver_has_credentials": _flag(
                        "Drivers have credentials", "Whether the platform of such drivers sets the variables of clients"
                    ),
                    "allow_insecure": _flag("Allow insecure", "Whether the token may be sent without TLS"),
                },
            }
        ],
    }


def _path(label: str, description: str) -> dict[str, Any]:
    described = f"{description}. A path on each machine that runs tasks"
    return {"label": label, "description": described, "schema": {"type": ["string", "null"], "pattern": "^(/.*)?$"}}


def _flag(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["boolean", "null"]}}


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": _INTEGRATION, "python-modules": list(names)}
