"""The node's cache of blobs: what is lent stays, what is least used goes, what is not right is not used."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from headway.agent.cache import CHECK_BYTES_MAX, Cache, Name


def kept(cache: Cache, body: bytes, tenant: int = 1) -> Name:
    name = Name(tenant, "sha256:" + hashlib.sha256(body).hexdigest())
    part = cache.part(name)
    part.write_bytes(body)
    cache.keep(name, part)
    return name


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "blobs", bytes_max=1000)


def test_a_blob_is_lent_to_its_own_tenant(cache: Cache):
    name = kept(cache, b"foo")
    path = cache.lend(name)
    assert path is not None and path.read_bytes() == b"foo" and path.stat().st_mode & 0o777 == 0o555
    assert cache.lend(Name(2, name.digest)) is None


def test_the_least_used_goes_and_nothing_that_is_lent(cache: Cache):
    first, second, third = (kept(cache, os.urandom(300)) for _ in range(3))
    assert cache.lend(second) is not None
    cache.lend(first)
    cache.give_back(first)
    fourth = kept(cache, os.urandom(300))
    assert [name for name in (first, second, third, fourth) if cache.path(name).exists()] == [first, second, fourth]
    fifth = kept(cache, os.urandom(900))
    assert cache.path(second).exists() and cache.path(fifth).exists()
    assert not cache.path(first).exists()
    cache.give_back(second)
    assert cache.bytes <= 1000


def test_one_that_is_larger_than_the_cache_is_there_while_it_is_used(cache: Cache):
    name = kept(cache, os.urandom(5000))
    assert cache.lend(name) is not None
    kept(cache, b"small")
    assert cache.path(name).exists()
    cache.give_back(name)
    assert not cache.path(name).exists()


@pytest.mark.parametrize("size", [10, CHECK_BYTES_MAX + 1])
def test_what_was_changed_on_the_disk_is_fetched_again(tmp_path: Path, size: int):
    cache = Cache(tmp_path / "blobs")
    name = kept(cache, bytes(size))
    path = cache.path(name)
    path.chmod(0o755)
    path.write_bytes(b"x" * size)
    assert cache.doubtful(name)
    if size > CHECK_BYTES_MAX:
        assert cache.lend(name) is None
        cache.checked(name, is_right=False)
    assert cache.lend(name) is None
    assert not path.exists()


def test_what_was_there_before_a_restart_is_used_after_a_look_at_it(tmp_path: Path):
    before = Cache(tmp_path / "blobs")
    good, bad = kept(before, b"good"), kept(before, b"bad")
    before.path(bad).chmod(0o755)
    before.path(bad).write_bytes(b"BAD")
    before.part(good).write_bytes(b"half")
    after = Cache(tmp_path / "blobs")
    assert after.lend(good) is not None
    assert after.lend(bad) is None
    assert sorted(path.name for path in (tmp_path / "blobs" / "1").iterdir()) == [good.digest[7:]]


def test_a_restart_keeps_to_the_limit(tmp_path: Path):
    before = Cache(tmp_path / "blobs", bytes_max=1000)
    names = [kept(before, os.urandom(300)) for _ in range(3)]
    Cache(tmp_path / "blobs", bytes_max=400)
    assert [before.path(name).exists() for name in names] == [False, False, True]
