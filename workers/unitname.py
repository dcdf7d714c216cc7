"""The name of an experiment's unit."""

from __future__ import annotations

import re
import unicodedata


def unit_name(experiment_id: int, name: str) -> str:
    """`expctl-<id>-<slug>`: the same for the same experiment, safe in file names and in systemd."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-")
    return f"expctl-{experiment_id}-{slug}" if slug else f"expctl-{experiment_id}"


def experiment_of(name: str) -> int | None:
    """The id in a unit's name; None where it is none of ours."""
    found = re.match(r"expctl-(\d+)(?:-|$)", name)
    return int(found[1]) if found else None
