"""Reading what a server exports."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[str, list[tuple[Mapping[str, str], float]]]
"""The labels and the value of each series, by the name of the metric."""


def scrape(port: int) -> Samples:
    """Return the samples that a server exports on a port."""
    samples: Samples = {}
    for family in text_string_to_metric_families(scraped_text(port)):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def scraped_text(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return the value of the only series of that name with these labels."""
    (found,) = [
        value for of_series, value in samples.get(name, []) if all(of_series.get(k) == v for k, v in labels.items())
    ]
    return found


def watchers_of(port: int) -> int:
    """Return the number of clients that watch statuses."""
    return round(value(scrape(port), "fluss_tiering_status_watchers"))
