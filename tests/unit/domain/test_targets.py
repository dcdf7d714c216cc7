from __future__ import annotations

import pytest

from service.domain.errors import UsageError
from service.domain.targets import AllowList, masked, parse_target, shown

SLACK = "https://hooks.slack.com/services/T/B/secret"


@pytest.mark.parametrize(
    ("allow", "host", "addresses", "usable"),
    [
        ("hooks.example.org", "hooks.example.org", ["93.184.215.14"], ["93.184.215.14"]),
        ("hooks.example.org", "hooks.example.org", ["93.184.215.14", "10.0.0.1"], ["93.184.215.14"]),
        ("hooks.example.org", "other.example.org", ["93.184.215.14"], []),
        ("*.example.org", "a.b.example.org", ["93.184.215.14"], ["93.184.215.14"]),
        ("*.example.org", "example.org", ["93.184.215.14"], []),
        ("*.example.org", "evil-example.org", ["93.184.215.14"], []),
        ("*.example.org", "a.example.org", ["169.254.169.254"], []),
        ("*.example.org 169.254.0.0/16", "a.example.org", ["169.254.169.254"], ["169.254.169.254"]),
        ("10.0.0.0/8", "ci.corp", ["10.1.2.3"], ["10.1.2.3"]),
        ("10.0.0.0/8", "ci.corp", ["11.1.2.3"], []),
        ("10.0.0.0/8", "10.9.9.9", ["10.9.9.9"], ["10.9.9.9"]),
        ("127.0.0.1", "127.0.0.1", ["127.0.0.1"], ["127.0.0.1"]),
        ("127.0.0.1", "127.0.0.2", ["127.0.0.2"], []),
        ("127.0.0.1", "::ffff:127.0.0.1", ["::ffff:127.0.0.1"], ["::ffff:127.0.0.1"]),
        ("localhost", "localhost", ["::1", "127.0.0.1"], ["::1", "127.0.0.1"]),
        ("2001:db8::/32", "x.corp", ["2001:db8::5"], ["2001:db8::5"]),
        ("x.corp", "x.corp", ["64:ff9b::7f00:1"], []),
        ("x.corp", "x.corp", ["2002:7f00:1::"], []),
        ("x.corp", "x.corp", ["::ffff:10.0.0.1"], []),
        ("x.corp", "x.corp", ["fe80::1%eth0", "fd00::1", "0.0.0.0", "224.0.0.1", "100.64.0.1"], []),
        ("", "hooks.slack.com", ["3.120.1.1"], []),
    ],
)
def test_where_a_webhook_may_go(allow: str, host: str, addresses: list[str], usable: list[str]) -> None:
    assert AllowList.parse(allow).usable("webhook", host, addresses) == usable


def test_slack_needs_no_naming_but_its_address_must_be_public() -> None:
    assert AllowList().usable("slack", "hooks.slack.com", ["3.120.1.1", "127.0.0.1"]) == ["3.120.1.1"]
    assert AllowList().usable("slack", "hooks.slack.com.evil.org", ["3.120.1.1"]) == []


@pytest.mark.parametrize("text", ["http://x", "a b;c", "*.", "*x.org", "10.0.0.0/99", "-"])
def test_an_entry_that_could_not_be_meant(text: str) -> None:
    with pytest.raises(UsageError, match="EXPCTL_NOTIFY_ALLOW cannot be read"):
        AllowList.parse(text)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://u:p@h/x", "a user or a password"),
        ("http://u@h/x", "a user or a password"),
        ("http://h/x#f", "fragment"),
        ("file:///etc/passwd", "not one of http"),
        ("http:///x", "not one of http"),
        ("http://h:99999/x", "cannot be read"),
        ("http://[::1/x", "cannot be read"),
        ("http://h/a b", "spaces"),
        ("http://h/\n", "spaces"),
        ("http://h/" + "x" * 3000, "too long"),
        ("http://a..b_/x\u202e", "odd signs"),
        ("http://h!/x", "no name and no address"),
    ],
)
def test_a_url_that_is_refused_is_not_repeated(url: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_target("webhook", url)
    assert why in str(refused.value)
    assert "passwd" not in str(refused.value)
    assert "u:p" not in str(refused.value)


def test_parts_of_a_url() -> None:
    target = parse_target("webhook", "HTTPS://Hooks.Example.org./in?x=1")
    assert (target.scheme, target.host, target.port) == ("https", "hooks.example.org", 443)
    assert parse_target("webhook", "http://[::1]:8080/").host == "::1"
    assert parse_target("webhook", "http://bücher.example/").host == "xn--bcher-kva.example"


def test_what_may_be_shown() -> None:
    assert shown("slack", SLACK) == "https://hooks.slack.com/..."
    assert shown("webhook", "https://h:8443/in?token=1") == "https://h:8443/in?..."
    assert masked(f"POST {SLACK} /services/T/B/secret whsec_1", [SLACK, "whsec_1", None]) == "POST *** /*** ***"
