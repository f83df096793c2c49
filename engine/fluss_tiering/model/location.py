"""Locations of files, such as `s3://bucket/folder/file`, split as Hadoop splits them."""

from __future__ import annotations

from typing import Final, NamedTuple

_LOCAL_SCHEMES: Final = frozenset({"", "file"})
_S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})
_GCS_SCHEMES: Final = frozenset({"gs", "gcs"})
_AZURE_SCHEMES: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
_HDFS_SCHEMES: Final = frozenset({"hdfs", "viewfs"})


class Location(NamedTuple):
    """The parts of a location.

    A location is no URL: `?` and `#` begin nothing, and `%` is no escape (`org.apache.hadoop.fs.Path`).

    Attributes:
        scheme: The scheme, in lower case; empty if there is none.
        authority: The bucket, the host with its port, or `container@host` in Azure; empty if there is none.
        path: The rest, as it stands.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, location: str) -> Location:
        """Split a location. Every text is one."""
        scheme, colon, rest = location.partition(":")
        if not colon or "/" in scheme:
            scheme, rest = "", location
        if not rest.startswith("//"):
            return cls(scheme.lower(), "", rest)
        authority, slash, path = rest[2:].partition("/")
        return cls(scheme.lower(), authority, slash + path)

    @property
    def is_local(self) -> bool:
        """Whether the location is on a disk of this machine."""
        return self.scheme in _LOCAL_SCHEMES

    @property
    def is_s3(self) -> bool:
        """Whether the location is in S3, or in a store that speaks as S3 does."""
        return self.scheme in _S3_SCHEMES

    @property
    def is_gcs(self) -> bool:
        """Whether the location is in Google Cloud Storage."""
        return self.scheme in _GCS_SCHEMES

    @property
    def is_azure(self) -> bool:
        """Whether the location is in a storage account of Azure."""
        return self.scheme in _AZURE_SCHEMES

    @property
    def is_hdfs(self) -> bool:
        """Whether the location is on HDFS."""
        return self.scheme in _HDFS_SCHEMES
