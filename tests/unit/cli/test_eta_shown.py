"""What submit and queue say about when things run."""

from __future__ import annotations

from pathlib import Path

import pytest

from expctl.main import run
from tests.unit.cli.fake_service import FakeService, item

TEXT = "starts about 02:10, ends about 03:05 (p90 03:20); by 12 loads of this configuration"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "exp.yaml"
    path.write_text("name: base\nengine: {kind: vllm, model: m}\n---\nname: next\nengine: {kind: vllm, model: m}\n")
    return str(path)


def test_submit_says_when_each_would_run(fake: FakeService, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    fake.answers["POST /v1/experiments"] = (201, [item(42, eta_text=TEXT), item(43, eta_text="no history yet")])
    assert run(["submit", file]) == 0
    out, err = capsys.readouterr()
    assert out == "42\n43\n"
    assert err.splitlines()[:4] == [
        "queued 42  base  (next on its host)",
        f"    {TEXT}",
        "queued 43  base  (next on its host)",
        "    no history yet",
    ]
