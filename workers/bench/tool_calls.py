"""Puts a tool call together from its pieces."""

from __future__ import annotations

from typing import Any

from workers.bench.whole_text import whole


class ToolCalls:
    """Calls by index; a piece without one goes to the last call, unless its id is new."""

    def __init__(self) -> None:
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, piece: Any) -> bool:
        """Take in one piece of a delta, and say whether it held anything."""
        if not isinstance(piece, dict):
            return False
        function = piece.get("function")
        parts = function if isinstance(function, dict) else {}
        name, arguments = parts.get("name") or "", parts.get("arguments") or ""
        if not (name or arguments or piece.get("id")):
            return False
        call = self._calls.setdefault(self._index(piece), {"id": None, "name": "", "arguments": ""})
        call["id"] = call["id"] or piece.get("id")
        # Some servers repeat the whole name in every piece; none is known to split it.
        call["name"] = call["name"] or str(name)
        call["arguments"] += arguments if isinstance(arguments, str) else str(arguments)
        return True

    def _index(self, piece: dict[str, Any]) -> int:
        index = piece.get("index")
        if isinstance(index, int):
            return index
        last = max(self._calls, default=-1)
        new = piece.get("id") and piece["id"] != self._calls.get(last, {}).get("id")
        return last + 1 if new or last < 0 else last

    def finished(self) -> list[dict[str, Any]]:
        """The calls in order."""
        calls = (self._calls[index] for index in sorted(self._calls))
        return [{name: None if value is None else whole(str(value)) for name, value in call.items()} for call in calls]
