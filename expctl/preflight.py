"""What a look before the start finds, asked of the hosts' workers; what nobody could look at is said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from expctl.client import Json
from expctl.globals import options
from expctl.hostclient import HostClient, NotLooked
from service.domain.errors import ExpctlError

MOST = 20
"""Experiments that are looked at in one go; a sweep's others differ in a value."""
NEEDED = ("name", "host", "engine")


def looked(specs: Sequence[Json], static: Sequence[list[Json]], *, within_s: float) -> list[list[Json]]:
    """The findings of each experiment: the host's own, or what can be said without it and why there is no more."""
    found = [*static]
    for host in dict.fromkeys(str(spec["host"]) for spec in specs):
        own = [at for at, spec in enumerate(specs) if spec["host"] == host]
        answers = _on_host(host, [specs[at] for at in own], within_s)
        for at, answer in zip(own, answers, strict=True):
            found[at] = answer if isinstance(answer, list) else [*static[at], _unchecked(answer)]
    return found


def _on_host(host: str, specs: list[Json], within_s: float) -> list[list[Json] | str]:
    """Findings, or why there are none, one an experiment; equal engines are looked at once."""
    keys = [json.dumps(spec["engine"], sort_keys=True) for spec in specs]
    chosen = dict(zip(reversed(keys), reversed(specs), strict=True))
    asked = [key for key in dict.fromkeys(keys) if chosen[key]["engine"]["kind"] != "endpoint"][:MOST]
    answers: dict[str, list[Json] | str] = {key: [] for key in keys if chosen[key]["engine"]["kind"] == "endpoint"}
    if asked:
        try:
            with HostClient(options.server) as client:
                told = client.look_at(host, [{name: chosen[key][name] for name in NEEDED} for key in asked], within_s)
            answers |= {key: one["findings"] for key, one in zip(asked, told, strict=True)}
        except NotLooked as why:
            answers |= dict.fromkeys(asked, str(why))
        except ExpctlError as error:
            answers |= dict.fromkeys(asked, error.what)
    return [answers.get(key, f"only {MOST} experiments are looked at on a host in one go") for key in keys]


def _unchecked(why: str) -> Json:
    text = f"paths, arguments, port, GPU memory and disk on the host: {why}"
    return {"about": "host", "verdict": "unchecked", "text": text, "reason": None, "evidence": "", "remedy": ""}


def sentence(finding: Json) -> str:
    """One finding for a person."""
    word = {"wrong": "WRONG", "doubtful": "doubtful", "unchecked": "not checked", "good": "ok"}[finding["verdict"]]
    todo = f"; {finding['remedy']}" if finding["remedy"] and finding["verdict"] in {"wrong", "doubtful"} else ""
    return f"{word}: {finding['about']}: {finding['text']}{todo}"


def is_wrong(findings: Sequence[dict[str, Any]]) -> bool:
    """Whether it could only fail."""
    return any(one["verdict"] == "wrong" for one in findings)
