"""Where messages may go: the operator's allow-list, and what of an address may be shown.

Messages are requests that the service makes for whoever may add a notifier, so an address must be one that the operator named,
and so must every address that its name stands for, unless that is a public one. Pure: whoever calls resolves the names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from service.domain.errors import UsageError

SETTING = "EXPCTL_NOTIFY_ALLOW"
SLACK_HOST = "hooks.slack.com"
PORTS = {"http": 80, "https": 443}
LONGEST = 2000

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?\.?")
_LOCALHOST = ("127.0.0.0/8", "::1/128")
# They carry an IPv4 address inside, which a gateway would unpack behind our back.
_WRAPPED = tuple(ipaddress.ip_network(one) for one in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96"))


@dataclass(frozen=True)
class Target:
    """Where a message goes, taken apart. `host` is in lower case, without brackets."""

    scheme: str
    host: str
    port: int


def parse_target(kind: str, url: str) -> Target:
    """The target of a notifier. UsageError says what is wrong with it, and never repeats it: it may hold a secret."""
    if len(url) > LONGEST or any(sign.isspace() or not sign.isprintable() for sign in url):
        raise _refused("the URL has spaces or odd signs in it, or is too long", "copy it again")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refused("the URL cannot be read", "write it like https://hooks.example.org/expctl") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise _refused("the URL is not one of http or https", "write it like https://hooks.example.org/expctl")
    if "@" in parts.netloc:
        raise _refused("the URL holds a user or a password", "leave them out: a webhook is signed, and Slack's address is its own secret")
    if parts.fragment:
        raise _refused("the URL has a fragment (#...)", "leave it out: it is never sent")
    host = _host(parts)
    if kind == "slack" and host == SLACK_HOST and parts.scheme != "https":
        raise _refused("Slack is reached by https only", "copy the address from Slack again")
    return Target(parts.scheme, host, port or PORTS[parts.scheme])


def _host(parts: SplitResult) -> str:
    name = (parts.hostname or "").lower()
    if address_of(name) is not None:
        return name
    try:
        name = name.encode("idna").decode() if not name.isascii() else name
    except UnicodeError:
        name = ""
    if not _HOST.fullmatch(name):
        raise _refused("the host in the URL is no name and no address", "write it like https://hooks.example.org/expctl")
    return name.rstrip(".")


def _refused(why: str, todo: str) -> UsageError:
    return UsageError("messages cannot go there", why, todo)


def shown(kind: str, url: str) -> str:
    """An address as it may be shown: Slack's by its host alone; of others neither query nor credentials."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "?"
    if kind == "slack":
        return f"{parts.scheme}://{host}/..."
    return f"{parts.scheme}://{host}{parts.path}" + ("?..." if parts.query else "")


def masked(text: str, secrets: Iterable[str | None]) -> str:
    """A text without the secrets in it: receivers and libraries repeat what they were sent."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
            path = urlsplit(secret).path if "://" in secret else ""
            text = text.replace(path, "/***") if len(path) > 1 else text
    return text


@dataclass(frozen=True)
class AllowList:
    """Host names, `*.example.org`, addresses and networks."""

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str, setting: str = SETTING) -> AllowList:
        """As the setting is written, with commas or spaces between. UsageError for an entry that could not be meant."""
        names: set[str] = set()
        suffixes: list[str] = []
        networks: list[Network] = []
        for entry in text.lower().replace(",", " ").split():
            network = _network(entry)
            if network is not None:
                networks.append(network)
            elif entry.startswith("*.") and _HOST.fullmatch(entry[2:]):
                suffixes.append(entry[1:])
            elif _HOST.fullmatch(entry):
                names.add(entry.rstrip("."))
            else:
                why = f"{entry[:80]!r} is no host name, no *.domain and no network"
                raise UsageError(f"{setting} cannot be read", why, "write it like hooks.example.org, *.corp.example or 10.0.0.0/8")
        if "localhost" in names:
            networks += [ipaddress.ip_network(one) for one in _LOCALHOST]
        return cls(frozenset(names), tuple(suffixes), tuple(networks))

    def names_host(self, kind: str, host: str) -> bool:
        """Whether the operator named this host, by name or as an address. Slack's own needs no naming for Slack."""
        if kind == "slack" and host == SLACK_HOST:
            return True
        literal = address_of(host)
        if literal is not None:
            return self._named(literal)
        return host in self.names or any(host.endswith(suffix) and host != suffix[1:] for suffix in self.suffixes)

    def usable(self, kind: str, host: str, addresses: Iterable[str]) -> list[str]:
        """Those of a name's addresses that may be connected to, in their order.

        A public one needs the name (or itself) to be named. One that is not public, this machine's and its neighbours', must
        be named itself: else whoever answers for a name could send the service to them.
        """
        named = self.names_host(kind, host)
        found = ((text, address_of(text)) for text in addresses)
        return [text for text, one in found if one is not None and (self._named(one) or (named and _public(one)))]

    def _named(self, address: Address) -> bool:
        return any(address in network for network in self.networks if network.version == address.version)


def refusal(kind: str, host: str, addresses: list[str], allow: AllowList) -> UsageError:
    """Why nothing may be sent to a host, and what an operator can do."""
    if allow.names_host(kind, host) and addresses:
        why = f"{host} stands for {', '.join(addresses[:3])}, which is not public, and no entry of {SETTING} names that address"
        return UsageError("messages may not go there", why, f"an operator adds {addresses[0]} (or its network) to {SETTING}")
    entry = "127.0.0.1" if host == "localhost" else host
    why = f"{host} is not in {SETTING}" if allow != AllowList() else f"{SETTING} is empty, so only Slack ({SLACK_HOST}) is allowed"
    return UsageError("messages may not go there", why, f"an operator sets {SETTING}, e.g. {SETTING}={entry}, and starts the service again")


def _network(entry: str) -> Network | None:
    try:
        return ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return None


def address_of(host: str) -> Address | None:
    """An address as it is written; one of IPv4 that is wrapped in IPv6 is that of IPv4."""
    try:
        found = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def _public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not wraps_another(address)


def wraps_another(address: Address) -> bool:
    """Whether it carries an IPv4 address inside, which a gateway would go to instead."""
    return not address.is_loopback and any(address in network for network in _WRAPPED if network.version == address.version)
