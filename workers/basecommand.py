"""The command line of an existing unit, as hosts read it and engines change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workers.expansion import SYSTEM_SPECIFIERS, Unresolved, expand


@dataclass(frozen=True)
class BaseCommand:
    """Half-decoded words of one ExecStart= command, whose program is not hidden behind a shell or a container."""

    unit: str
    words: tuple[str, ...]
    lead: int = 0
    """How many words come before the program and are gone once it runs: `env A=b`, `numactl -N 0`."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What `$` references become, as far as it is known; values may be secrets."""
    warnings: tuple[str, ...] = ()

    def argv(self, words: tuple[str, ...], lead: int, env: Mapping[str, str]) -> tuple[str, ...]:
        """What /proc is expected to show for `words` with `env` added; empty where it cannot be known beforehand."""
        try:
            return expand(words[lead:], SYSTEM_SPECIFIERS, {**self.variables, **env})
        except Unresolved:
            return ()
