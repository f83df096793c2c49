"""Reading what a server exports."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[str, list[tuple[Mapping[str, str], float]]]
"""The labels and the value of each series, by the name of the metric."""


def scrape(port: int, ca: Path | None = None, token: str | None = None) -> Samples:
    """Return the samples that a server exports on a port, over TLS if the file of its authority is given."""
    samples: Samples = {}
    for family in text_string_to_metric_families(scraped_text(port, ca, token)):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def scraped_text(port: int, ca: Path | None = None, token: str | None = None) -> str:
    context = None if ca is None else ssl.create_default_context(cafile=ca)
    scheme = "http" if context is None else "https"
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
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
