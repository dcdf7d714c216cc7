"""What can be proven of a unit that was edited, reloaded and not restarted; and what is no more than a doubt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workers.hosts.base import UnitSource
from workers.hosts.drift import drift_of

PATH = "/etc/systemd/system/vllm-prod.service"
TEXT = "[Service]\nEnvironmentFile=/etc/default/vllm\nExecStart=/opt/v/bin/vllm serve ${MODEL} --port 8000 $EXTRA\n"
WRITTEN = {"MODEL": "/srv/kimi", "EXTRA": ""}
LIVE = ("/opt/v/bin/python3", "/opt/v/bin/vllm", "serve", "/srv/kimi", "--port", "8000")


def unit(text: str = TEXT, written: dict[str, str] | None = None, **changes: object) -> UnitSource:
    made = UnitSource(
        "vllm-prod.service", ((PATH, text),), "sha", {}, LIVE, {**WRITTEN, "PATH": "/bin"},
        written_variables={**WRITTEN, **(written or {})}, changed=(PATH,),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (unit(TEXT.replace("8000", "8000 --max-model-len 4096")), "other arguments"),
        (unit(TEXT.replace("/opt/v/", "/opt/new/")), "it runs /opt/v/bin/vllm, not /opt/new/bin/vllm"),
        (unit(written={"MODEL": "/srv/other"}), "other arguments"),
        (unit(written={"EXTRA": "--enforce-eager"}), "other arguments"),
        (unit(written={"CUDA_VISIBLE_DEVICES": "0"}), "other values of CUDA_VISIBLE_DEVICES"),
        (unit(TEXT.replace("=/opt", "=/usr/bin/env A=b /opt").replace("8000", "8001")), "other arguments"),
        (unit(written={"MODEL": "/srv/other"}, live_argv=("VLLM::APIServer",)), "other values of MODEL"),
    ],
)
def test_an_edit_that_the_process_does_not_run_is_proven(source: UnitSource, words: str) -> None:
    drift = drift_of(source)
    assert drift is not None
    assert (drift.proven, PATH in drift.text) == (True, True)
    assert words in drift.text
    assert "/srv/other" not in drift.text, "values may be secrets"


EDITED = TEXT.replace("8000", "8001")


@pytest.mark.parametrize(
    "source",
    [
        unit(),
        unit(written={"NEW": "1"}, live_argv=("VLLM::APIServer",)),
        unit(TEXT.replace("[Service]", "[Service]\nLimitNOFILE=5")),
        unit(EDITED, live_argv=("VLLM::APIServer",)),
        unit(EDITED, live_argv=()),
        unit(EDITED, written_variables=None),
        unit("[Service]\nExecStart=/bin/bash -c 'exec /opt/v/bin/vllm serve'\n"),
        unit("[Service]\nExecStart=/opt/start-vllm serve\n"),
        unit("[Service]\nExecStart=/opt/v/bin/vllm serve %m\n"),
        unit("[Service]\nExecStart=/opt/v/bin/vllm serve ${INVOCATION_ID}\n"),
        unit("[Service]\nExecStart=/opt/v/bin/vllm\nExecStart=/opt/v/bin/vllm\n"),
        unit("[Service\n"),
        unit(TEXT.replace("=/opt", "=/usr/bin/env A=b /opt"), written={"A": "c"}, variables={**WRITTEN, "A": "b"}),
        unit("[Service]\nUnsetEnvironment=A\n" + TEXT, written={"A": "c"}),
        unit("[Service]\nPassEnvironment=OURS\n" + TEXT.replace("$EXTRA", "$OURS"), variables={**WRITTEN, "OURS": ""}),
        unit(written={"A": "c"}, variables={}),
    ],
)
def test_what_cannot_be_compared_is_a_doubt_and_no_more(source: UnitSource) -> None:
    drift = drift_of(source)
    assert drift is not None
    assert not drift.proven
    assert "may come back as something else" in drift.text


@pytest.mark.parametrize("source", [unit(EDITED, changed=()), unit(changed=()), unit(changed=(), live_argv=())])
def test_files_that_are_older_than_the_process_are_no_doubt(source: UnitSource) -> None:
    """What it runs otherwise than written is then its own doing: a wrapper's, for one."""
    assert drift_of(source) is None
