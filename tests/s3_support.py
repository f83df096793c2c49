"""A server that speaks S3, with its objects in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyarrow import fs

from examples.ports import free_ports
from fetch_test_servers import S3PROXY
from java_servers import RunningServer

ACCESS_KEY: Final = "fluss"
SECRET_KEY: Final = "secret-of-tests"
REGION: Final = "us-east-1"
_SETTINGS: Final = """\
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization={authorization}
s3proxy.identity={access_key}
s3proxy.credential={secret_key}
# Clients ask for checksums, which this server does not know.
s3proxy.ignore-unknown-headers=true
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={objects}
jclouds.identity=unused
jclouds.credential=unused
"""
_LOGGING: Final = """\
<configuration>
  <appender name="err" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %level %logger %msg%n</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="err"/></root>
</configuration>
"""


class S3Server(RunningServer):
    """An S3 server; `with` starts and ends it.

    Args:
        folder: The folder for its files.
        signed: Whether it demands signed requests.
    """

    def __init__(self, folder: Path, *, signed: bool = True) -> None:
        (port,) = free_ports(1)
        self.objects = folder / "objects"
        self.objects.mkdir(parents=True)
        settings, logging = folder / "s3proxy.conf", folder / "logback.xml"
        settings.write_text(
            _SETTINGS.format(
                port=port,
                authorization="aws-v2-or-v4" if signed else "none",
                access_key=ACCESS_KEY,
                secret_key=SECRET_KEY,
                objects=self.objects,
            )
        )
        logging.write_text(_LOGGING)
        super().__init__(
            S3PROXY,
            folder,
            port,
            options=[f"-Dlogback.configurationFile={logging}"],
            arguments=["--properties", str(settings)],
        )

    @property
    def endpoint(self) -> str:
        """The address as HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def filesystem(self, secret_key: str = SECRET_KEY) -> fs.S3FileSystem:
        """Return the file system with which pyarrow reads the objects."""
        return fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=secret_key,
            endpoint_override=self.endpoint,
            scheme="http",
            region=REGION,
            allow_bucket_creation=True,
        )

    def upload(self, folder: Path, bucket: str, prefix: str = "") -> None:
        """Copy the files of a folder into a bucket, which is created if it does not exist."""
        # The server does not accept checksums after the body, which clients add since 2025 by default.
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
            target = self.filesystem()
            target.create_dir(bucket)
            destination = f"{bucket}/{prefix}".rstrip("/")
            fs.copy_files(
                str(folder), destination, source_filesystem=fs.LocalFileSystem(), destination_filesystem=target
            )
