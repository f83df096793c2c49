"""`fluss-tiering spark-conf`: arguments to start Spark with."""

from __future__ import annotations

import shlex

from fluss_tiering.spark.startup.catalog_conf import session_conf


def test_the_arguments_set_the_catalog_of_this_server(command, server):
    words = shlex.split(command("spark-conf", "--catalog", "lake").out)
    assert words[::2] == ["--conf"] * len(session_conf(server.target))
    assert dict(word.split("=", 1) for word in words[1::2]) == session_conf(server.target, catalog="lake")
