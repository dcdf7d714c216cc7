"""What these tests share."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from service.domain.host_config import HostConfig
from tests.unit.workers.production_rig import ADDRESS, ANSWERED, PROD, Book, Rig
from workers import serving
from workers.engines.base import Readiness
from workers.hosts.fake_production import FakeProductionHost
from workers.production import Production


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    host, book = FakeProductionHost("gpu0"), Book()
    config = HostConfig(ssh="gpu0", units="systemd", park=[PROD], restore_timeout=600, dead_man=1800)
    made = Rig(host, book, Production(host, config, ADDRESS, {}, book))

    def probe(base_url: str, model: str, headers: Mapping[str, str], token_s: float) -> Readiness:
        del model, headers, token_s
        return made.answers.get(base_url) or ANSWERED

    monkeypatch.setattr(serving, "probe", probe)
    host.serve(PROD)
    return made
