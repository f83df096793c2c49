"""Locations of files, split as Hadoop's Path splits them, and what a process tells about where it was started."""

from cases import cases
from fluss_tiering.model.location import Location
from fluss_tiering.model.tiering import RoundOrigin


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


TASK = {
    "AIRFLOW_CTX_DAG_ID": "tier",
    "AIRFLOW_CTX_DAG_RUN_ID": "scheduled__2026-11-28T03:00:00+00:00",
    "AIRFLOW_CTX_TASK_ID": "shop.submit",
    "AIRFLOW_CTX_MAP_INDEX": "3",
    "AIRFLOW_CTX_TRY_NUMBER": "2",
}
RUN = TASK["AIRFLOW_CTX_DAG_RUN_ID"]


def test_a_process_of_a_task_tells_the_task() -> None:  # E31
    told = RoundOrigin.of_process(TASK, "local-17", "http://worker:4040")
    assert told == RoundOrigin("tier", RUN, "shop.submit", 3, 2, "local-17", "http://worker:4040")
    not_mapped = RoundOrigin.of_process({**TASK, "AIRFLOW_CTX_MAP_INDEX": "-1"})
    assert not_mapped == RoundOrigin("tier", RUN, "shop.submit", None, 2)
    assert RoundOrigin.of_process({}) == RoundOrigin()
    for address in ("http://[::1]:4040", "https://host/proxy/@app?a=b@c#d"):
        assert RoundOrigin.of_process({}, spark_ui_url=address).spark_ui_url == address


def test_what_a_server_would_refuse_is_left_out() -> None:  # E31
    odd = {
        "AIRFLOW_CTX_DAG_ID": "a\nb",
        "AIRFLOW_CTX_DAG_RUN_ID": "r" * 513,
        "AIRFLOW_CTX_MAP_INDEX": "9" * 12,
        "AIRFLOW_CTX_TRY_NUMBER": "two",
    }
    logins = ("http://user:pw@host/", "https://token@host:1", "http:///user:pw@host/", "http://a\\@b/")  # E35
    for address in ("javascript:alert(1)", "http://" + "h" * 600, "http://a\x1b[0m", "", *logins):
        assert RoundOrigin.of_process({**TASK, **odd}, "local-17", address) == RoundOrigin(
            task_id="shop.submit", spark_application_id="local-17"
        )
