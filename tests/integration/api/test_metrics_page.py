"""The page about metrics and /metrics name the same ones, with the same labels."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from service.api.metrics import Collector
from tests.integration.api.service import Api, Hands

PAGE = Path(__file__).parents[3] / "docs" / "observability.md"
NAME = re.compile(r"`(expctl_\w+?)(?:\{([\w,]+)\})?`")


def test_every_metric_is_on_the_page_and_none_else(api: Api) -> None:
    families = list(text_string_to_metric_families(api.get("/metrics").text))
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `expctl_")]
    told = [name for row in rows for name, _ in NAME.findall(row.split("|")[1])]
    assert sorted(told) == sorted(shown(one) for one in families)


def test_with_the_labels_that_it_has(api: Api) -> None:
    api.submit(name="a")
    hands = Hands(api.database)
    hands.finish(hands.take())
    collected = Collector(api.database).collect()
    labels = {shown(one): {name for sample in one.samples for name in sample.labels} - {"le"} for one in collected if one.samples}
    told = {name: set(given.split(",")) if given else set() for name, given in NAME.findall(PAGE.read_text())}
    assert {name: told[name] for name in labels} == labels
    assert {"expctl_experiments", "expctl_experiments_finished_total", "expctl_queue_wait_seconds"} <= labels.keys()


def shown(family: Metric) -> str:
    """As queries name it."""
    return f"{family.name}_total" if family.type == "counter" else family.name
