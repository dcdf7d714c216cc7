"""A server that may not be asked is not asked."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from service.domain.endpoint_rule import SETTING, EndpointRule
from service.domain.reasons import Reason
from service.domain.spec import Spec
from service.domain.targets import AllowList
from workers.engines.base import HostDefaults, Readiness
from workers.engines.registry import make_engine


def look(allow: str, base_url: str, metrics_url: str = "off") -> Readiness:
    engine = {"kind": "endpoint", "base_url": base_url, "served_model_name": "m", "metrics_url": metrics_url}
    rule = EndpointRule(AllowList.parse(allow, SETTING), "own")
    return make_engine(Spec.model_validate({"name": "x", "engine": engine}), HostDefaults(8001, {}, rule), {}).probe("")


@pytest.mark.parametrize("allow", ["", "127.0.0.0/8"])
def test_one_that_may_is(server: Any, allow: str) -> None:
    server.serves("m")
    assert look(allow, server.url).ready


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest", "http://2852039166:80", "http://[fe80::1]:8000/v1"])
def test_link_local_addresses_are_never_asked(url: str) -> None:
    found = look("169.254.0.0/16", url)
    assert (found.ready, found.reason) == (False, Reason.BAD_ARGUMENTS)
    assert "never asked" in found.detail


def test_neither_the_server_nor_its_metrics_may_be_elsewhere(server: Any) -> None:
    server.serves("m")
    assert SETTING in look("gpu1", server.url).detail
    assert not look("127.0.0.0/8", server.url, "http://169.254.169.254/latest/meta-data").ready
    assert server.asked == []


def test_a_name_that_nobody_knows_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    found = look("", "http://no-such-host.invalid:1")
    assert (found.ready, found.reason) == (False, None)
    assert "cannot be resolved" in found.detail


def test_an_answer_that_leads_to_another_server_is_not_followed(server: Any) -> None:
    server.serves("m")
    server.answers["/v1/models"] = (307, f"{server.url.replace('127.0.0.1', 'localhost')}/v1/models")
    found = look("", server.url)
    assert (found.ready, [path for _, path, _, _ in server.asked]) == (False, ["/v1/models"])
    assert "where nobody asked for" in found.detail
