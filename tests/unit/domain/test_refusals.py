from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from service.domain.refusals import refusal, unusable_number, unusable_text
from service.domain.spec_base import Name
from service.domain.status import StepName


class Model(BaseModel):
    """One of each."""

    name: Name = "x"
    number: Annotated[int, Field(ge=1, le=10)] = 1
    share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.5
    flag: bool = True
    text: Annotated[str, Field(min_length=2, max_length=4)] = "abc"
    words: Annotated[list[str], Field(min_length=1, max_length=2)] = ["a"]
    keys: dict[str, str] = {}
    kind: Literal["a", "b"] = "a"
    step: StepName = StepName.LOAD
    code: Annotated[str, Field(pattern="^x+$")] = "x"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"name": ""}, "may not be empty"),
        ({"name": "\n"}, "must be one line of text with something to see in it"),
        ({"name": "x" * 201}, "may have at most 200 characters"),
        ({"number": "x"}, "must be a whole number"),
        ({"number": 1.5}, "must be a whole number"),
        ({"number": 0}, "must be 1 or more"),
        ({"number": 11}, "must be 10 or less"),
        ({"share": "x"}, "must be a number"),
        ({"share": 0}, "must be more than 0"),
        ({"share": 1}, "must be less than 1"),
        ({"share": float("nan")}, "must be a finite number"),
        ({"flag": "x"}, "must be true or false"),
        ({"text": 3}, "must be a text"),
        ({"text": "a"}, "must have 2 characters or more"),
        ({"words": []}, "may not be empty"),
        ({"words": ["a"] * 3}, "may have at most 2 entries"),
        ({"words": 3}, "must be a list"),
        ({"keys": 3}, "must be a mapping of keys to values"),
        ({"kind": "c"}, "must be 'a' or 'b'"),
        ({"step": "c"}, "must be 'clear', 'launch', 'load', 'warm', 'measure' or 'collect'"),
        ({"code": "y"}, "is not written as it should be"),
    ],
)
def test_in_our_words(value: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate(value)
    assert [refusal(dict(problem)) for problem in caught.value.errors()] == [words]


def test_numbers_that_nothing_could_carry() -> None:
    assert unusable_number({"a": [1, 2.5, {"b": True}], "c": 2**64 - 1, "d": -(2**63)}) is None
    assert unusable_number({"a": [1, float("inf")]}) == (("a", 1), "inf is no number that could be passed on")
    assert unusable_number({"a": {"b": 2**64}}) == (("a", "b"), "has more than 64 bits")


def test_half_a_character() -> None:
    assert unusable_text({"a": ["x", "\U0001f600"]}) is None
    assert unusable_text({"a": ["x", "\ud800"]}) == "\ud800"
    assert unusable_text({"\udfff": 1}) == "\udfff"
