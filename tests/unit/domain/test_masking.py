from __future__ import annotations

import pytest

from service.domain.masking import LogMask, Mask, secrets_of
from service.domain.tokentext import make

TOKEN = make()


def test_secrets_are_blotted_out_wherever_they_stand() -> None:
    mask = Mask(["sk-secret", "sk-secret-longer", "abc"])
    assert mask("Bearer sk-secret-longer!") == "Bearer ***!"
    assert mask({"a": ["x sk-secret", 1, None, {"b": "sk-secret"}]}) == {"a": ["x ***", 1, None, {"b": "***"}]}
    assert mask("abc") == "abc", "too short to be told from chance"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"token {TOKEN}.", "token expctl_***."),
        ("postgresql://ann:pass-word@db/x", "postgresql://ann:***@db/x"),
        ("redis://:pass-word@r:6379/0", "redis://:***@r:6379/0"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_***"),
        ("https://hooks.slack.com/services/T0/B0/XyZ", "https://hooks.slack.com/services/***"),
        ("http://127.0.0.1:8700/v1 at expctl-1-x.service", "http://127.0.0.1:8700/v1 at expctl-1-x.service"),
        ("expctl_experiments_finished", "expctl_experiments_finished"),
        ("it says sk-secret", "it says ***"),
    ],
    ids=["token", "postgresql", "redis", "bearer", "whsec", "slack", "address", "metric", "known"],
)
def test_a_log_hides_also_what_looks_like_a_secret(said: str, shown: str) -> None:
    mask = LogMask(["sk-secret"])
    assert mask(said) == shown
    assert mask(ValueError(said)) == shown
    assert mask({"a": [said, 1, None, True]}) == {"a": [shown, 1, None, True]}


def test_the_secrets_of_an_environment() -> None:
    environ = {
        "VLLM_API_KEY": "sk-1", "SLACK_TOKEN": "xoxb", "DB_PASSWORD": "pw", "EXPCTL_DATABASE_URL": "postgresql://a:b@h/x",
        "KEYBOARD": "us", "HOME": "/root", "EXPCTL_BROKER_URL": "redis://:hidden@r/0",
    }  # fmt: skip
    assert set(secrets_of(environ)) == {"sk-1", "xoxb", "pw", "b", "hidden"}
