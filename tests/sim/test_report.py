"""The report stands for itself, says what was simulated, and is the same byte for byte."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from headway.sim.report import report
from headway.sim.running import POLICIES, simulate
from tests.sim.scenarios import a_world, an_example

HOSTILE = """
    name: "<script>alert(1)</script>"
    about: "</style><img src=x onerror=alert(2)>"
    horizon: 5m
    failures: {mean_time_between: 2m, repair: 30s}
    nodes: [{count: 4, resources: {cpu: 2, memory: 8Gi}}]
    tenants:
      - name: "<b>&'\\""
        work:
          - name: late
            arrive: {kind: poisson, rate: 3 per second}
            duration: {kind: uniform, least: 1s, most: 9s}
            execution_cap: 10s
            delay_tolerance: 1s
            resources: {cpu: 1, memory: 1Gi}
      - name: other
        work:
          - name: steady
            arrive: {kind: poisson, rate: 1 per second}
            duration: {kind: fixed, seconds: 2s}
            execution_cap: 10s
            resources: {cpu: 1, memory: 1Gi}
"""
ALONE = {"meta", "br", "hr"}


class Page(HTMLParser):
    """Which elements there are; fails on one that is closed out of order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.links += [name for name, _ in attrs if name in ("src", "href") or name.startswith("on")]
        if tag not in ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_same_seed_gives_the_same_report_byte_for_byte_and_another_one_another():
    first, again = (report([simulate(an_example("quick"))]) for _ in range(2))
    assert first == again
    assert report([simulate(an_example("quick", seed=2))]) != first


@pytest.mark.parametrize("policies", [["headway"], list(POLICIES)])
def test_a_report_needs_nothing_from_elsewhere_and_names_are_only_text_in_it(policies: list[str]):
    text = report([simulate(a_world(HOSTILE), policy) for policy in policies])
    page = Page(text)
    assert {"script", "img", "link", "iframe", "b"} & set(page.found) <= {"b"}
    assert page.links == []
    assert not re.search(r"https?://|url\(|@import", text)
    assert "&lt;script&gt;alert(1)" in text


def test_there_is_a_plot_of_everything_that_happened():
    text = report([simulate(a_world(HOSTILE))])
    for title in (
        "Utilization", "Tasks", "Waiting time", "Lateness", "Waiting over time", "Fairness", "Deadline misses", "Nodes",
    ):  # fmt: skip
        assert f"<h2>{title}</h2>" in text
    assert "<h2>Preemptions</h2>" not in text  # nothing could be paused
    assert "NaN" not in text
    assert "nan" not in re.findall(r'[dxy]="[^"]*nan[^"]*"', text)


def test_a_report_of_several_puts_them_side_by_side():
    text = report([simulate(an_example("quick"), policy) for policy in POLICIES])
    assert "<h2>Side by side</h2>" in text
    assert all(f"<h2>Tenants and lanes with {policy}</h2>" in text for policy in POLICIES)


def test_what_hardly_began_has_a_report():
    quick = an_example("quick")
    assert "quick" in report([simulate(quick._replace(streams=quick.streams[:1], horizon=1.0))])
