from __future__ import annotations

from pathlib import Path

import pytest

from service.domain.errors import UsageError
from service.domain.spec import Bench, Prompt
from workers.bench.prompts import builtin_prompts, load_prompts, resolve, warmup_prompts


def test_the_built_in_five() -> None:
    assert [prompt.id for prompt in builtin_prompts()] == ["code", "maths", "structured", "explanation", "reasoning"]
    assert all(prompt.messages is not None and len(prompt.messages) == 1 for prompt in builtin_prompts())
    assert resolve(Bench()) == builtin_prompts()
    texts = {str(prompt.messages) for prompt in builtin_prompts()}
    assert texts.isdisjoint(str(prompt.messages) for prompt in warmup_prompts())


def test_own_prompts_resolve_to_themselves() -> None:
    own = [Prompt(id="a", prompt="x")]
    assert resolve(Bench(prompts=own)) == own


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(
        '\ufeff{"prompt": "a\u2028b"}\n\n{"id": "x", "messages": [{"role": "user", "content": "c"}], "max_tokens": 5}\r\n{"prompt": "d"}',
        "utf-8",
    )
    assert load_prompts(file) == [
        Prompt(id="p0", prompt="a\u2028b"),
        Prompt(id="x", messages=[{"role": "user", "content": "c"}], max_tokens=5),
        Prompt(id="p2", prompt="d"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no prompt"),
        ('{"prompt": "a"}\n{"prompt": ', "line 2 is not JSON"),
        ('["a"]', "line 1 is not a JSON object"),
        ('{"text": "a"}', "line 1 is not a prompt; unknown key text; known: id, messages, prompt, max_tokens"),
        ('{"prompt": "a", "max_token": 5}', "did you mean max_tokens"),
        ('{"prompt": "a", "max_tokens": "many"}', r"max_tokens: must be a whole number \(it is 'many'\)"),
        ('{"prompt": 5}', r"prompt: must be a text \(it is 5\)"),
        ('{"messages": []}', "messages is empty"),
        ('{"prompt": "a"} {}', "line 1 is not JSON; at column 17: something stands behind"),
        ('{"prompt": "a", "messages": [{}]}', "either messages or prompt"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens"),
        ('{"id": "x", "prompt": "a"}\n{"id": "x", "prompt": "b"}', "line 2: the id x stands in line 1"),
    ],
)
def test_errors_name_file_line_and_remedy(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match=says) as caught:
        load_prompts(file)
    assert "p.jsonl" in str(caught.value)
    assert caught.value.todo


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_prompts(tmp_path / "none.jsonl")
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_prompts(tmp_path / "b")
