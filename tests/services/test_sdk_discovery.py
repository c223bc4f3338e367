"""Where a client looks for its server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from headway.sdk.discovery import default_data_dir, discover
from headway.sdk.errors import DiscoveryError


def home(tmp_path: Path, *, profile: str = "", dev_pid: int | None = None) -> dict[str, str]:
    if profile:
        (tmp_path / ".config/headway").mkdir(parents=True)
        (tmp_path / ".config/headway/config.toml").write_text(profile)
    if dev_pid is not None:
        directory = default_data_dir({"HOME": str(tmp_path)})
        assert directory is not None
        directory.mkdir(parents=True)
        said = {"url": "http://dev", "key": "hw_dev", "pid": dev_pid}
        (directory / "ready.json").write_text(json.dumps(said))
    return {"HOME": str(tmp_path)}


PROFILE = """
[profile.default]
url = "http://profile"
key = "hw_p"
[profile.work]
url = "http://work"
key = "hw_w"
"""
BROKEN = ["[profile.default]\nurl = 3\n", "not toml", '[profile.default]\nurl = "x"\n']


def test_what_the_caller_says_comes_first(tmp_path: Path):
    environ = {**home(tmp_path, profile=PROFILE), "HEADWAY_URL": "http://environ", "HEADWAY_KEY": "hw_e"}
    assert discover("http://said", "hw_s", environ)[:2] == ("http://said", "hw_s")
    assert discover(None, None, environ)[:2] == ("http://environ", "hw_e")


def test_then_the_profile_then_the_running_dev(tmp_path: Path):
    environ = home(tmp_path, profile=PROFILE, dev_pid=os.getpid())
    assert discover(environ=environ).url == "http://profile"
    assert discover(environ={**environ, "HEADWAY_PROFILE": "work"}).url == "http://work"
    (tmp_path / ".config/headway/config.toml").unlink()
    assert discover(environ=environ)[:2] == ("http://dev", "hw_dev")


def test_a_dev_that_is_gone_is_not_found(tmp_path: Path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(DiscoveryError, match="headway dev"):
        discover(environ=home(tmp_path, dev_pid=gone.pid))


def test_the_key_of_one_server_is_never_sent_to_another(tmp_path: Path):
    environ = home(tmp_path, dev_pid=os.getpid())
    assert discover("http://dev/", environ=environ).key == "hw_dev"
    with pytest.raises(DiscoveryError, match="no key for http://elsewhere"):
        discover("http://elsewhere", environ=environ)


@pytest.mark.parametrize("profile", BROKEN)
def test_a_broken_configuration_is_told(tmp_path: Path, profile: str):
    with pytest.raises(DiscoveryError, match=r"config\.toml"):
        discover(environ=home(tmp_path, profile=profile))


def test_the_default_data_directory_is_per_user():
    assert default_data_dir({"HOME": "/h"}) == Path("/h/.local/share/headway/dev")
    assert default_data_dir({"HOME": "/h", "XDG_DATA_HOME": "/x"}) == Path("/x/headway/dev")
    assert default_data_dir({}) is None
