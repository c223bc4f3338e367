"""Manifests are read strictly, and what is wrong is said with its line."""

from __future__ import annotations

import pytest

from headway.cli.manifest import ManifestError, parse
from headway.core.limits import Rate
from headway.core.task import Admitted, Tier, admit


def submission(text: str):
    return parse(text.encode(), "task.yml").submission()


def wrong(text: str) -> str:
    with pytest.raises(ManifestError) as error:
        submission(text)
    return str(error.value)


def test_a_manifest_becomes_a_submission():
    said = submission(
        """
version: 1
name: encode
command: [ffmpeg, -threads, 4]
env: {LEVEL: 5, FAST: yes, EMPTY: "", WHEN: 2026-01-01}
resources: {cpu: 2, memory: 4Gi}
delay_tolerance: 1h30m
execution_cap: 90
retry: {max_attempts: 5, never_on_exit: [64]}
eligible_at: 2026-11-18T20:00:00Z
"""
    )
    assert said.command == ["ffmpeg", "-threads", "4"]
    assert said.env == {"LEVEL": "5", "FAST": "yes", "EMPTY": "", "WHEN": "2026-01-01"}
    assert said.resources == {"cpu": 2, "memory": "4Gi"}
    assert (said.execution_cap, said.delay_tolerance) == (90, "1h30m")
    assert said.retry is not None
    assert said.retry.never_on_exit == [64]
    assert said.eligible_at is not None


def test_json_is_read_as_well():
    assert submission('{"command": ["echo", "\\u00e4"], "tags": {"a": "b"}}').command == ["echo", "ä"]


def test_the_arguments_of_a_function_keep_their_types():
    said = submission("function: shop.tasks:charge\nargs: [1, 2.5, true, null, yes, '3']\nkwargs: {n: {x: 4}}\n")
    assert said.args == [1, 2.5, True, None, "yes", "3"]
    assert said.kwargs == {"n": {"x": 4}}


def test_an_unknown_key_names_its_line_and_the_key_that_was_meant():
    assert wrong("command: [x]\nexecution_kap: 3s\n").startswith(
        "task.yml:2: unknown key 'execution_kap'; did you mean execution_cap?"
    )


def test_every_wrong_key_is_said_at_once():
    assert wrong("command: [x]\nfoo: 1\nbar: 2\n").count("unknown key") == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\nname: b\ncommand: [x]\n", "task.yml:2: 'name' is said twice, first on line 1"),
        ("command: [x]\nenv:\n  A: 1\n  A: 2\n", "task.yml:4: 'A' is said twice, first on line 3"),
        ("command: [x]\nretry: {max_attemps: 2}\n", "task.yml:2: retry: "),
        ("command: x\n", "task.yml:1: command: Expected `array"),
        ("a: &a [x]\nb: *a\n", "task.yml:1: anchors and aliases are not read"),
        ("command: [x\n", "task.yml:2: "),
        ("command: [" + "[" * 100 + "]" * 100 + "]\n", "nested more than 32 deep"),
        ("command: [x]\n---\ncommand: [y]\n", "one manifest per file"),
        ("version: 2\ncommand: [x]\n", "task.yml:1: version: "),
        ("", "expected keys"),
        ("- a\n", "expected keys"),
        ("? [a]\n: b\n", "a key must be a text"),
        ("\x00", "task.yml"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: str):
    assert told in wrong(text)


def test_a_huge_manifest_is_not_read():
    assert "1 MiB" in wrong("#" * (1024 * 1024 + 1))


def test_limits_and_ports_are_said_as_people_do():
    text = b"""
command: [serve]
resources: {cpu: 0.5, ports: [http, admin]}
rates: [{key: api, rate: 60, per: 1m}, {key: mail, rate: 60 per minute}]
concurrency: [{key: account-7, limit: 1}]
"""
    verdict = admit(parse(text, "task.yml").submission(), {"basic": Tier("basic", {}, 1000, 1000)})
    assert isinstance(verdict, Admitted), verdict
    assert verdict.terms.rates == (Rate("api", 60, 60.0), Rate("mail", 60, 60.0))
    assert dict(verdict.needs) == {"cpu": 500, "ports": 2}
