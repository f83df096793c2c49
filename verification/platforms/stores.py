"""The stores of lakes: how each is started on this machine, what it is set to, and which settings are wrong."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from examples.ports import free_ports
from fetch_test_servers import AWS_BUNDLE, REST_AWS, fetch_jar
from java_servers import RunningProgram
from platforms.programs import MOTO, go_program, moto, npm_programs, python_with
from platforms.running import CHECKSUMS, NOWHERE, Platform, Running, place_on_s3, sqlite
from rest_support import RestCatalog
from s3_support import ACCESS_KEY, REGION, SECRET_KEY, S3Server

_AZURE_BUNDLE: Final = "org.apache.iceberg:iceberg-azure-bundle:1.10.0"
_GCP_BUNDLE: Final = "org.apache.iceberg:iceberg-gcp-bundle:1.11.0"
_FAKE_GCS: Final = "github.com/fsouza/fake-gcs-server@v1.52.2"
_AZURITE: Final = "3.37.0"
_ACCOUNT: Final = "devstoreaccount1"
_ACCOUNT_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that everybody's Azurite has, with the key that its documentation names."""


@contextmanager
def _s3(folder: Path) -> Iterator[Running]:
    with S3Server(folder / "s3") as store:
        store.filesystem().create_dir("lake")
        yield Running(
            {
                **sqlite(folder),
                "warehouse": "s3://lake/warehouse",
                **place_on_s3(store),
                "s3.access-key-id": ACCESS_KEY,
                "s3.secret-access-key": SECRET_KEY,
            },
            "S3Proxy 2.7.0",
            [AWS_BUNDLE],
            CHECKSUMS,
            {
                "secret key": {"s3.secret-access-key": "wrong"},
                "bucket": {"warehouse": "s3://nothing/warehouse"},
                "address": {"s3.endpoint": f"http://{NOWHERE}"},
            },
            stop=store.stop,
            start=store.start,
        )


@contextmanager
def _s3_role(folder: Path) -> Iterator[Running]:
    with moto(folder) as endpoint:
        yield Running(
            {
                **sqlite(folder),
                "warehouse": "s3://lake/warehouse",
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "s3.endpoint": endpoint,
                "s3.path-style-access": "true",
                "s3.sse.type": "s3",
                "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
                "client.assume-role.arn": "arn:aws:iam::123456789012:role/lake",
                "client.assume-role.region": REGION,
            },
            f"the emulator moto {MOTO}, which checks no rights",
            [AWS_BUNDLE],
            {
                "AWS_ENDPOINT_URL_STS": endpoint,
                "AWS_ACCESS_KEY_ID": "of-the-emulator",
                "AWS_SECRET_ACCESS_KEY": "of-the-emulator",
                **CHECKSUMS,
            },
            {"encryption": {"s3.sse.type": "kms"}},
        )


@contextmanager
def _rest_on_s3(folder: Path) -> Iterator[Running]:
    with S3Server(folder / "s3") as store:
        store.filesystem().create_dir("lake")
        place = place_on_s3(store)
        keys = {"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}
        jars = [fetch_jar(each) for each in REST_AWS]
        with RestCatalog(
            folder / "rest", warehouse="s3://lake", properties={**place, **keys}, vends=True, jars=jars
        ) as catalog:
            yield Running(
                {**catalog.properties, "name": "lake", **place},
                "the server of Iceberg's own tests 1.10.0, S3Proxy 2.7.0",
                [AWS_BUNDLE],
                CHECKSUMS,
                {"address of S3": {"s3.endpoint": f"http://{NOWHERE}"}},
                stop=store.stop,
                start=store.start,
            )


@contextmanager
def _azure(folder: Path) -> Iterator[Running]:
    (port,) = free_ports(1)
    program = npm_programs(f"azurite@{_AZURITE}") / "azurite-blob"
    command = [str(program), "--skipApiVersionCheck", "--blobPort", str(port), "--location", str(folder), "--silent"]
    # Killed, the emulator loses what it was given last, so that it is not ended in mid-round.
    with RunningProgram("azurite", folder, port, command):
        host = f"127.0.0.1:{port}"
        _make_container(host)
        authority = f"{_ACCOUNT}.dfs.core.windows.net"
        yield Running(
            {
                **sqlite(folder),
                "warehouse": f"abfss://lake@{authority}/warehouse",
                "io-impl": "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
                f"adls.connection-string.{authority}": f"http://{host}/{_ACCOUNT}",
                "adls.auth.shared-key.account.name": _ACCOUNT,
                "adls.auth.shared-key.account.key": _ACCOUNT_KEY,
            },
            f"the emulator Azurite {_AZURITE}",
            [_AZURE_BUNDLE],
            wrong={
                "key": {"adls.auth.shared-key.account.key": "d3Jvbmc="},
                "container": {"warehouse": f"abfss://nothing@{authority}/warehouse"},
            },
        )


@contextmanager
def _gcs(folder: Path) -> Iterator[Running]:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [str(go_program(_FAKE_GCS)), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-filesystem-root", str(folder / "objects"), "-public-host", f"127.0.0.1:{port}", "-external-url", url]
    with RunningProgram("fake-gcs-server", folder, port, command) as server:
        bucket = urllib.request.Request(f"{url}/storage/v1/b?project=lake", data=b'{"name": "lake"}', method="POST")
        bucket.add_header("Content-Type", "application/json")
        urllib.request.urlopen(bucket).close()
        yield Running(
            {
                **sqlite(folder),
                "warehouse": "gs://lake/warehouse",
                "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO",
                "gcs.service.host": url,
                "gcs.project-id": "lake",
                "gcs.oauth2.token": "of-the-emulator",
                "gcs.oauth2.token-expires-at": str(int((time.time() + 86_400) * 1000)),
            },
            f"the emulator fake-gcs-server {_FAKE_GCS.rpartition('@')[2]}",
            [_GCP_BUNDLE],
            wrong={
                "address": {"gcs.service.host": f"http://{NOWHERE}"},
                "bucket": {"warehouse": "gs://nothing/warehouse"},
                "token that has expired": {"gcs.oauth2.token-expires-at": "1000"},
            },
            stop=server.stop,
            start=server.start,
        )


def _make_container(host: str) -> None:
    program = (
        "import sys; from azure.storage.blob import BlobServiceClient; "
        "BlobServiceClient(sys.argv[1], credential=sys.argv[2]).create_container('lake')"
    )
    python = python_with("azure-storage-blob")
    subprocess.run([str(python), "-c", program, f"http://{host}/{_ACCOUNT}", _ACCOUNT_KEY], check=True)


STORES: Final = (
    Platform("s3", "S3, with a JDBC catalog", _s3),
    Platform("s3-role", "S3 with an assumed role and encryption, with a JDBC catalog", _s3_role),
    Platform("rest-s3", "REST catalog that vends credentials, on S3", _rest_on_s3),
    Platform(
        "azure",
        "Azure Data Lake Storage",
        _azure,
        refuses=dict.fromkeys(("clean", "maintain"), "the emulator cannot list the files of a folder"),
    ),
    Platform("gcs", "Google Cloud Storage", _gcs),
)
"""The stores, in the order of the page."""
