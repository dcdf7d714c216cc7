"""What the command line asks of tokens."""

from __future__ import annotations

from expctl.client import Client, Json
from service.domain.errors import NotFound, UsageError


class TokenClient(Client):
    """The service's routes of tokens."""

    def tokens(self, *, ended: bool) -> list[Json]:
        """Tokens: everybody's for an admin, else one's own."""
        found: list[Json] = self._call("GET", "/v1/tokens", params={"ended": ended})
        return found

    def create_token(self, wanted: Json) -> Json:
        """A new token, with its text."""
        return self._object("POST", "/v1/tokens", json=wanted)

    def revoke_token(self, which: str) -> Json:
        """End a token, named by its name or its id."""
        living = self.tokens(ended=False)
        return self._object("DELETE", f"/v1/tokens/{number_of(which, living)}")


def number_of(which: str, living: list[Json]) -> int:
    """The id of a token: names go before ids, and every id is one whose token is not among the living."""
    for one in living:
        if one["name"] == which:
            return int(one["id"])
    if which.isascii() and which.isdigit():
        if not 0 < int(which) < 2**31:
            raise UsageError(f"{which} is no id of a token", "", "see `expctl token list`")
        return int(which)
    names = ", ".join(str(one["name"]) for one in living) or "none"
    raise NotFound(f"there is no token named {which}", f"known: {names}", "see `expctl token list`")
