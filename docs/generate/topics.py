"""What every verb has in common: global options, exit codes, how times are written, and where the command line says the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docs.generate.markdown import table
from docs.generate.settings import code_list
from expctl import moments
from expctl.exitcodes import MEANINGS
from expctl.globals import GLOBAL_OPTIONS
from expctl.topics import TOPICS


def global_options() -> str:
    """Before or behind every verb."""
    return table(("option", "what"), [(code_list(names), what) for names, what in GLOBAL_OPTIONS.items()])


def exit_codes() -> str:
    """How a command ended."""
    return table(("code", "when"), [(str(int(code)), meaning) for code, meaning in MEANINGS.items()])


def times() -> str:
    """What happened, how long, what is to come."""
    kinds: tuple[tuple[str, Mapping[str, str]], ...] = (
        ("`--since`, `--until`", moments.BEHIND),
        ("durations", moments.DURATIONS),
        ("`not_before`, `--window`", moments.AHEAD),
    )
    return table(("where", "form", "meaning"), [(where, f"`{form}`", what) for where, forms in kinds for form, what in forms.items()])


def topics() -> str:
    """What the command line explains by itself."""
    return table(("", "what"), [(f"`expctl help {name}`", topic.about) for name, topic in TOPICS.items()])


BLOCKS: dict[str, Callable[[], str]] = {
    "global-options": global_options, "exit-codes": exit_codes, "times": times, "topics": topics,
}  # fmt: skip
