"""Locations of files are split as Hadoop's Path splits them: they are no URLs."""

from cases import cases
from fluss_tiering.model.location import Location


@cases(
    ("text", "scheme", "authority", "path"),
    [
        ("/a/b", "", "", "/a/b"),
        ("file:/a/b", "file", "", "/a/b"),
        ("file:///a/b", "file", "", "/a/b"),
        ("S3A://bucket/a/b", "s3a", "bucket", "/a/b"),
        ("hdfs://name:8020/a", "hdfs", "name:8020", "/a"),
        ("s3://bucket", "s3", "bucket", ""),
        ("file:/a#1/b?c=d/%20/e;f", "file", "", "/a#1/b?c=d/%20/e;f"),
        ("s3://b/k#1?x=%2F", "s3", "b", "/k#1?x=%2F"),
        ("file:/a\n\tb/[c]", "file", "", "/a\n\tb/[c]"),
        ("/a:b/c", "", "", "/a:b/c"),
        ("file:/a//b", "file", "", "/a//b"),
        ("file:relative/path", "file", "", "relative/path"),
    ],
)
def test_nothing_in_a_path_means_anything(text: str, scheme: str, authority: str, path: str) -> None:
    assert Location.parse(text) == (scheme, authority, path)
    assert Location.parse(text).is_local == (scheme in ("", "file"))
    assert Location.parse(text).is_s3 == scheme.startswith("s3")
