"""Queue two experiment files, wait until both have ended, and say what the comparison says.

    python examples/compare_two.py BASELINE.yaml CANDIDATE.yaml [--server URL]

What was measured already is not measured again. Exits 0 where the candidate is not worse, 3 where it is or where something did not succeed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from expctl import Client, errors
from expctl.specfiles import read


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("baseline")
    asked.add_argument("candidate")
    asked.add_argument("--server", help="default: EXPCTL_SERVER")
    given = asked.parse_args(argv)
    try:
        return compare(given.server, given.baseline, given.candidate)
    except errors.ExpctlError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return error.exit_code


def compare(server: str | None, *files: str) -> int:
    """Both at once, so that one is not queued without the other."""
    specs = [spec.model_dump(mode="json", by_alias=True) for file in files for spec in read(file, [])]
    with Client(server) as client:
        base, candidate = client.submit(specs, again=False)
        ended = client.wait([base.id, candidate.id], told=lambda one: print(one.id, one.name, one.status_text, file=sys.stderr))
        if not all(one.succeeded for one in ended):
            return 3
        found = client.compare(base.id, candidate.id)
    effect = found.bench_phases[0].effect
    change = f", {effect.tps_ratio - 1:+.1%} tokens/s" if effect else ""
    print(f"{candidate.name} against {base.name}: {found.verdict}{change}")
    for warning in found.warnings:
        print(f"  {warning}", file=sys.stderr)
    return 3 if found.verdict == "worse" else 0


if __name__ == "__main__":
    sys.exit(main())
