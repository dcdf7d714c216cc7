from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from service.domain.errors import UsageError
from service.domain.host_change import changed, check_name, differing, locked
from service.domain.host_config import HostConfig

REAL = {"ssh": "admin@llm-two", "units": "systemd", "park": ["vllm-kimi.service"], "window": "20:00-08:00", "time_zone": "Europe/Berlin"}


def refused(given: dict[str, Any], known: dict[str, Any] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        changed(known or {}, given)
    assert caught.value.what
    return f"{caught.value.what}\n{caught.value.why}"


def test_defaults_are_those_of_a_machine_of_ones_own() -> None:
    config = changed({}, {})
    assert (config.ssh, config.units, config.park, config.opening, config.experiment_port) == (None, "process", [], None, 8001)


def test_durations_as_people_write_them() -> None:
    config = changed({}, {"close_after": "10m", "dead_man": "1h", "hooks": {"timeout": "90s"}})
    assert (config.close_after, config.dead_man, config.hooks.timeout) == (600.0, 3600.0, 90.0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"windw": "20:00-08:00"}, "windw: there is no such setting; did you mean window?"),
        ({"hooks": {"before": []}}, "hooks.before: there is no such setting"),
        ({"window": "evening"}, "window: a window is written like 20:00-08:00"),
        ({"window": 5}, "window: must be a text"),
        ({"time_zone": "Mars/Olympus"}, "time_zone: 'Mars/Olympus' is no time zone; write one such as Europe/Berlin or UTC"),
        ({"time_zone": "../UTC"}, "is no time zone"),
        ({"park": ["vllm"], "units": "systemd"}, "park.0: write the whole name of a systemd unit"),
        ({"park": ["x a.service"], "units": "systemd"}, "park.0: write the whole name of a systemd unit"),
        ({"park": ["--x.service"], "units": "systemd"}, "park.0: write the whole name of a systemd unit"),
        ({"park": ["a.service\n"], "units": "systemd"}, "park.0: write the whole name of a systemd unit"),
        ({"park": ["../a.service"], "units": "systemd"}, "park.0: write the whole name of a systemd unit"),
        ({"park": ["a.service", "a.service"], "units": "systemd"}, "park: name each unit once"),
        ({"park": ["expctl-1-x.service"], "units": "systemd"}, "park: a unit of ours cannot be production"),
        ({"park": ["a.service"]}, "keeps its units with systemd: units: systemd"),
        ({"ssh": "admin@llm-two"}, "keeps its units with systemd: units: systemd"),
        ({"ssh": "-oProxyCommand=x", "units": "systemd"}, "ssh: write it like user@host"),
        ({"ssh": "a b", "units": "systemd"}, "ssh: write it like user@host"),
        ({"ssh": "a\n", "units": "systemd"}, "ssh: write it like user@host"),
        ({"engine_address": "10.0.0.5"}, "engine_address: write it like http://10.0.0.5, without a port"),
        ({"production_address": "http://h:8000/v1"}, "production_address: write it like http://10.0.0.5:8000"),
        ({"production_api_key": "sk-secret"}, "production_api_key: write a reference such as env:VLLM_API_KEY"),
        ({"experiment_port": 0}, "experiment_port: must be 1 or more"),
        ({"executables": {"vlm": "/x"}}, "executables: no engine of the kind 'vlm' is started by expctl\nkinds: vllm"),
        ({"executables": {"endpoint": "/x"}}, "executables: no engine of the kind 'endpoint'"),
        ({"dead_man": "10s"}, "dead_man: must be 60 or more"),
        ({"close_after": "soon"}, "close_after: a duration is written like 30m, 90s or 1h30m"),
        ({"hooks": {"before_park": "drain"}}, "hooks.before_park: must be a list"),
        ({"hooks": []}, "hooks: must be a mapping of keys to values"),
    ],
)
def test_what_is_wrong_is_said_in_our_words(given: dict[str, Any], says: str) -> None:
    assert says in refused(given)


def test_every_mistake_is_told_at_once_and_no_secret_with_it() -> None:
    told = refused({"production_api_key": "sk-secret", "window": "x", "nonsense": 1})
    assert len(told.splitlines()) == 4
    assert "sk-secret" not in told


def test_half_a_character_is_refused_in_words_that_can_be_sent() -> None:
    for given in (
        {"ssh": "\ud800"},
        {"\ud800": 1},
        {"executables": {"\ud800": "x"}},
        {"executables": {"\ud800": 5}},
        {"hooks": {"\ud800": 1}},
    ):
        refused(given).encode()


def test_a_change_leaves_the_rest_alone() -> None:
    config = changed(REAL, {"window": "21:00-07:00", "hooks": {"before_park": ["drain"]}})
    assert (config.window, config.park, config.ssh) == ("21:00-07:00", ["vllm-kimi.service"], "admin@llm-two")
    config = changed(config.model_dump(mode="json"), {"hooks": {"after_restore": ["undrain"]}, "executables": {"vllm": "/a"}})
    assert (config.hooks.before_park, config.hooks.after_restore, config.executables) == (["drain"], ["undrain"], {"vllm": "/a"})


def test_null_is_back_to_the_default() -> None:
    known = changed(REAL, {"hooks": {"before_park": ["drain"]}, "executables": {"vllm": "/a"}}).model_dump(mode="json")
    config = changed(
        known, {"window": None, "park": None, "time_zone": None, "hooks": {"before_park": None}, "executables": {"vllm": None}}
    )
    assert (config.window, config.park, config.time_zone, config.hooks.before_park, config.executables) == (None, [], "UTC", [], {})


def test_what_a_shift_has_in_hand_is_told_from_what_may_change() -> None:
    free = {
        "window": "21:00-07:00", "time_zone": "UTC", "close_after": 60, "dead_man": 60, "restore_timeout": 60,
        "hooks": {"timeout": 5}, "production_address": "http://h:1", "production_api_key": "env:K",
    }  # fmt: skip
    assert locked(REAL, changed(REAL, free)) == []
    assert sorted(differing(REAL, changed(REAL, free))) == sorted(free)
    held = {
        "ssh": "admin@llm-three", "park": ["other.service"], "engine_address": "http://h", "experiment_port": 8002,
        "executables": {"vllm": "/b"}, "nvidia_smi": "/usr/bin/nvidia-smi", "run_as": "vllm", "simulated": True,
    }  # fmt: skip
    assert sorted(locked(REAL, changed(REAL, held))) == sorted(held)
    assert {*free, *held, "units"} == set(HostConfig.model_fields), "a new setting must be judged too"


def test_the_order_of_the_units_is_a_setting_and_a_default_written_out_is_none() -> None:
    two = {"units": "systemd", "park": ["a.service", "b.service"]}
    assert locked(two, changed(two, {"park": ["b.service", "a.service"]})) == ["park"]
    assert differing({}, changed({}, {"experiment_port": 8001})) == []


@pytest.mark.parametrize("name", ["llm-two", "a", "10.0.0.5", "GPU.lab", "a" * 63])
def test_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "a-", "a.", "a b", "a/b", "a_b", "ä", "a\n", "a" * 64, "\ud800", None, 5, ["a"]])
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(UsageError, match="is no name for a host") as caught:
        check_name(name)
    str(caught.value).encode()


def test_a_stored_row_with_an_unknown_key_is_not_read_as_if_nothing_were_wrong() -> None:
    with pytest.raises(ValidationError):
        HostConfig.model_validate({"windw": "x"})
