"""The lists of what becomes of a store's properties, compared with the properties that Iceberg has."""

from __future__ import annotations

import re
import zipfile

import pytest

from fluss_tiering.lake.store_properties import REFUSED, TAKEN, WITHOUT_EFFECT

CLASSES = (
    "aws/s3/S3FileIOProperties",
    "aws/AwsClientProperties",
    "aws/AwsProperties",
    "azure/AzureProperties",
    "gcp/GCPProperties",
)
TEXT = re.compile(rb"\x01\x00(.)((?:s3|client|gcs|adls)\.[a-z0-9.-]+)", re.DOTALL)
"""A text in a class file: a tag, two bytes with its length, and its characters."""


# E26
@pytest.mark.system
def test_each_property_of_iceberg_is_in_one_of_the_lists(spark_jars: str) -> None:
    runtime = next(jar for jar in spark_jars.split(",") if "iceberg-spark-runtime" in jar)
    found = set()
    with zipfile.ZipFile(runtime) as jar:
        for name in CLASSES:
            for text in TEXT.finditer(jar.read(f"org/apache/iceberg/{name}.class")):
                found.add(text[2][: text[1][0]].decode())
    assert len(found) > 80
    assert found <= TAKEN | WITHOUT_EFFECT | REFUSED.keys()
    assert not (TAKEN & WITHOUT_EFFECT) | ((TAKEN | WITHOUT_EFFECT) & REFUSED.keys())
