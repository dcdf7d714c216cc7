"""Puts a tool call together from its pieces."""

from __future__ import annotations

import json
from typing import Any

from workers.bench.whole_text import whole


class ToolCalls:
    """Calls by index; a piece without one goes to the last call, unless its id is new."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, Any]] = {}
        self._moved: dict[int, int] = {}
        """Index that a server used again for another call -> the place of that call."""

    def add(self, piece: Any) -> bool:
        """Take in one piece of a delta, and say whether it held anything."""
        if not isinstance(piece, dict):
            return False
        function = piece.get("function")
        parts = function if isinstance(function, dict) else {}
        name, arguments = parts.get("name") or "", parts.get("arguments") or ""
        if not (name or arguments or piece.get("id")):
            return False
        call = self._calls.setdefault(self._index(piece, str(name)), {"id": None, "name": "", "arguments": ""})
        call["id"] = call["id"] or piece.get("id")
        # Some servers repeat the whole name in every piece; none is known to split it.
        call["name"] = call["name"] or str(name)
        call["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return True

    def _index(self, piece: dict[str, Any], name: str) -> int:
        index = piece.get("index")
        if isinstance(index, int):
            place = self._moved.get(index, index)
            if name and self._is_another(place, piece.get("id")):
                place = self._moved[index] = max(self._calls) + 1
            return place
        last = max(self._calls, default=-1)
        new = piece.get("id") and piece["id"] != self._calls.get(last, {}).get("id")
        return last + 1 if new or last < 0 else last

    def _is_another(self, place: int, identity: Any) -> bool:
        """Whether a named piece begins a call of its own, though its index is taken: some parsers number every call 0.

        An id alone does not tell, since others make up a new one for each piece; a call whose arguments are whole does.
        """
        call = self._calls.get(place)
        if call is None or not identity or call["id"] in {None, identity}:
            return False
        try:
            json.loads(call["arguments"])
        except (ValueError, RecursionError):
            return False
        return True

    def finished(self) -> list[dict[str, Any]]:
        """The calls in order."""
        calls = (self._calls[index] for index in sorted(self._calls))
        return [{name: None if value is None else whole(str(value)) for name, value in call.items()} for call in calls]
