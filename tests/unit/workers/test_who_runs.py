"""Who experiments run as: what `host install` writes into the helper's config, and what `host check` finds missing there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from service.domain.host_config import HostConfig
from service.domain.reasons import Reason
from workers.checking import Check, Checks
from workers.hosts.base import HostError, UnitSource
from workers.hosts.fake_production import FakeProductionHost
from workers.hosts.helper_client import Claim
from workers.hosts.transport import CommandResult
from workers.reaching import Reach
from workers.requests import Requests

PROD, OTHER = "vllm-prod.service", "vllm-other.service"


@dataclass
class Wire:
    """A host whose systemd knows users of units, and whose helper says what it allows."""

    users: dict[str, str] = field(default_factory=dict)
    hello: dict[str, Any] = field(default_factory=dict)
    down: bool = False

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        del more
        if self.down:
            raise HostError(Reason.HOST_UNREACHABLE, "no route to host")
        said = self.users[argv[-1]] + "\n" if argv[0] == "systemctl" else json.dumps({"ok": True, **self.hello})
        return CommandResult(0, None, said.encode(), b"")


def installed(config: HostConfig, wire: Wire) -> list[str]:
    """The users that `host install` writes."""
    reach = cast("Reach", SimpleNamespace(transport=lambda: wire))
    return Requests(cast("Any", None), cast("Any", None), config, {}, reach)._users()


def config(*park: str, **more: Any) -> HostConfig:
    return HostConfig(ssh="expctl@gpu0", units="systemd", park=list(park), **more)


@pytest.mark.parametrize(
    ("users", "run_as", "written"),
    [
        ({PROD: "vllm", OTHER: "llm"}, None, ["vllm", "llm"]),
        ({PROD: "vllm", OTHER: "vllm"}, "bench", ["bench", "vllm"]),
        ({PROD: "", OTHER: "root"}, None, []),
        ({PROD: "1000", OTHER: ""}, "root", []),
    ],
)
def test_installing_allows_production_s_own_users(users: dict[str, str], run_as: str | None, written: list[str]) -> None:
    assert installed(config(PROD, OTHER, run_as=run_as), Wire(users)) == written


def test_the_helper_is_shown_before_anybody_can_log_in() -> None:
    assert installed(config(PROD, run_as="bench"), Wire(down=True)) == ["bench"]


def checked(user: str, *, run_as: list[str], allow_root: bool = False, root: bool = False, beside: str | None = None) -> Check:
    """Of production's user, and of the user of what is parked beside it."""
    host = FakeProductionHost("gpu0", run_as=None)
    host.sources[PROD] = UnitSource(PROD, (), "sha", {"User": user})
    host.sources[OTHER] = UnitSource(OTHER, (), "sha", {"User": beside or ""})
    wire = Wire(hello={"config": {"run_as": run_as, "allow_root": allow_root}, "caller": {"root": root}})
    claim = Claim("service", "worker", 1)
    reach = cast("Reach", SimpleNamespace(transport=lambda: wire, claim=lambda: claim, impatient=lambda: host))
    checks = Checks("gpu0", config(PROD) if beside is None else config(PROD, OTHER), reach, {})
    checks._try("who runs experiments", checks._users)
    return checks.found[0]


def test_a_user_that_the_helper_does_not_allow_is_found_by_day() -> None:
    assert checked("vllm", run_as=["vllm"])["ok"] is True
    found = checked("vllm", run_as=[])
    assert (found["ok"], found["remedy"]) == (False, "run `expctl host install gpu0`")
    assert "run as vllm" in found["found"]


def test_root_is_for_an_admin_to_allow() -> None:
    assert "allow_root" in checked("", run_as=["vllm"])["remedy"]
    assert checked("", run_as=[], allow_root=True)["ok"] is True
    assert checked("", run_as=[], root=True)["ok"] is True


def test_what_is_parked_beside_the_engine_need_not_be_forked() -> None:
    found = checked("vllm", run_as=["vllm"], beside="root")
    assert (found["ok"], "cannot be forked" in found["found"]) == (None, True)
    assert checked("root", run_as=["vllm"], beside="root")["ok"] is False
    assert checked("vllm", run_as=["vllm"], beside="vllm")["ok"] is True
