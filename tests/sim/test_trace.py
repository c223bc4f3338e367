"""Traces: last week's arrivals from CSV and Parquet, replayed; what is wrong with one is said with its row."""

from __future__ import annotations

import gzip
from pathlib import Path
from textwrap import dedent

import msgspec
import pyarrow
import pytest
from pyarrow import csv, parquet

from headway.sim.outcome import Outcome
from headway.sim.reading import ScenarioError, read
from headway.sim.running import simulate
from headway.sim.world import world
from tests.sim.scenarios import row

SCENARIO = """\
name: replay
horizon: 1h
nodes: [{count: 2, resources: {cpu: 2, memory: 8Gi}}]
trace:
  file: week.csv
  defaults: {delay_tolerance: 2m}
"""
TRACE = """\
submitted_at,duration,tenant,cpu,memory,execution_cap,tier,delay_tolerance
2026-11-16T08:00:00Z,30,shop,1,1Gi,60,basic,
2026-11-16T08:00:00Z,40s,shop,1,1Gi,10,basic,
2026-11-16T08:00:05Z,1m,lab,2,1073741824,2m,regular,1s
2026-11-16 08:00:10+00:00,5,shop,1,1Gi,,basic,
"""


def replayed(beside: Path, trace: str = TRACE, scenario: str = SCENARIO, *, name: str = "week.csv") -> Outcome:
    (beside / name).write_text(trace)
    return simulated(beside, scenario)


def simulated(beside: Path, scenario: str = SCENARIO, *, nodes: int | None = None, load: float = 1.0) -> Outcome:
    said, source = read(dedent(scenario).encode(), str(beside / "scenario.yml"))
    return simulate(world(said, source, nodes=nodes, load=load), checks=True)


def test_each_row_arrives_when_it_did_and_takes_as_long_as_it_did(tmp_path: Path):
    found = replayed(tmp_path)
    assert (found.arrived, found.done) == (4, 3)
    assert row(found, "shop").capped == 1
    assert row(found, "lab", "urgent").wait.most == 0.0  # both of shop fit onto the other node
    assert found.utilization["cpu"] == pytest.approx((30 + 10 + 2 * 60 + 5) / (4 * 3600), abs=1e-5)


def test_twice_the_nodes_wait_less_and_twice_the_load_is_twice_the_tasks(tmp_path: Path):
    rows = "".join(f"{second},20,shop,1\n" for second in range(200))
    once = replayed(tmp_path, "submitted_at,duration,tenant,cpu\n" + rows)
    more, double = simulated(tmp_path, nodes=4), simulated(tmp_path, load=2)
    assert row(more, "shop").wait.mean < 0.6 * row(once, "shop").wait.mean
    assert (once.arrived, double.arrived) == (200, 400)
    assert 250 < simulated(tmp_path, load=1.5).arrived < 350


def test_parquet_and_compressed_csv_say_the_same_as_csv(tmp_path: Path):
    expected = msgspec.json.encode(replayed(tmp_path))
    (tmp_path / "week.csv.gz").write_bytes(gzip.compress(TRACE.encode()))
    table = csv.read_csv(tmp_path / "week.csv")
    parquet.write_table(table, tmp_path / "week.parquet")
    assert table.schema.field("submitted_at").type == pyarrow.timestamp("s", "UTC")
    for name in ("week.csv.gz", "week.parquet"):
        assert msgspec.json.encode(simulated(tmp_path, SCENARIO.replace("week.csv", name))) == expected


def test_columns_of_other_names_are_named_and_tenants_are_described(tmp_path: Path):
    scenario = SCENARIO.replace(
        "  defaults", "  columns: {submitted_at: time, duration: runtime, tenant: user}\n  defaults"
    )
    scenario += "tenants: [{name: ann, quota: {running: 1}, tier: premium}]\n"
    found = replayed(tmp_path, "user,time,runtime,queue\nann,100,10,x\nann,100,10,x\n", scenario)
    assert row(found, "ann").wait.most == pytest.approx(10, abs=0.1)  # by its quota; queue is somebody else's column


@pytest.mark.parametrize(
    ("instead", "by", "says"),
    [
        ("submitted_at,", "submited_at,", "there is no column 'submitted_at'; did you mean submited_at?"),
        ("memory,", "memroy,", "unknown column 'memroy'; did you mean memory?"),
        (",30,", ",-30,", "row 1: duration: expected a duration"),
        (",30,", ",soon,", "row 1: duration: expected a duration"),
        ("2026-11-16T08:00:05Z", "yesterday", "row 3: submitted_at: expected seconds, or a time such as"),
        ("2026-11-16T08:00:05Z", "2026-11-16T07:00:05Z", "row 3: submitted_at: is before the row above; sort the rows"),
        (",lab,2,", ",lab,200,", "row 3: fits no node: cpu of node, the nearest, is less"),
        (",lab,2,", ",lab,-2,", "row 3: resources.cpu: "),
        (",regular,", ",golden,", "row 3: tier: there is no tier 'golden'"),
        ("regular,1s", "regular,1s,7", "row 3: 9 cells below 8 headings"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_row(instead: str, by: str, says: str, tmp_path: Path):
    assert instead in TRACE
    with pytest.raises(ScenarioError) as refused:
        replayed(tmp_path, TRACE.replace(instead, by, 1))
    assert says in str(refused.value)
    assert "week.csv" in str(refused.value)


def test_a_file_that_is_missing_empty_or_of_another_kind_is_said(tmp_path: Path):
    with pytest.raises(ScenarioError, match=r"week\.csv: cannot be read"):
        simulated(tmp_path)
    with pytest.raises(ScenarioError, match="there is no column 'submitted_at'"):
        replayed(tmp_path, "")
    with pytest.raises(ScenarioError, match="no task arrives in it"):
        replayed(tmp_path, TRACE.splitlines()[0] + "\n")
    with pytest.raises(ScenarioError, match=r"week\.parquet: is no Parquet"):
        replayed(tmp_path, TRACE, SCENARIO.replace("week.csv", "week.parquet"), name="week.parquet")
    with pytest.raises(ScenarioError, match="unknown key; did you mean columns"):
        replayed(tmp_path, TRACE, SCENARIO.replace("defaults", "colums"))
