from __future__ import annotations

from workers.masking import Mask


def test_secrets_are_blotted_out_wherever_they_stand() -> None:
    mask = Mask(["sk-secret", "sk-secret-longer", "abc"])
    assert mask("Bearer sk-secret-longer!") == "Bearer ***!"
    assert mask({"a": ["x sk-secret", 1, None, {"b": "sk-secret"}]}) == {"a": ["x ***", 1, None, {"b": "***"}]}
    assert mask("abc") == "abc", "too short to be told from chance"
