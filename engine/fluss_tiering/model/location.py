"""Locations of files, such as `s3://bucket/folder/file`, split as Hadoop splits them."""

from __future__ import annotations

from typing import Final, NamedTuple

_LOCAL_SCHEMES: Final = frozenset({"", "file"})
_S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})


class Location(NamedTuple):
    """The parts of a location.

    A location is no URL: `?` and `#` begin nothing, and `%` is no escape (`org.apache.hadoop.fs.Path`).

    Attributes:
        scheme: The scheme, in lower case; empty if there is none.
        authority: The bucket, or the host with its port; empty if there is none.
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
