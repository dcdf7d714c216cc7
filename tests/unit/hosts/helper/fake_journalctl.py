"""A journalctl for tests: ROOT/fake/journal.json is a list of entries, oldest first; they are matched and printed as the real one does."""

import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
ALWAYS = ("__CURSOR", "__REALTIME_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "_BOOT_ID")


def matches(entry: dict[str, Any], wanted: list[str]) -> bool:
    """Words of one field are alternatives, of several fields conditions; + begins another set."""
    group: dict[str, list[str]] = {}
    for word in [*wanted, "+"]:
        if word != "+":
            group.setdefault(word.partition("=")[0], []).append(word.partition("=")[2])
        elif group and all(entry.get(name) in values for name, values in group.items()):
            return True
        else:
            group = {}
    return False


def main(argv: list[str]) -> None:
    if argv == ["--sync"]:
        (ROOT / "fake/synced").touch()
        return
    options = [one for one in argv if one.startswith("--")]
    assert {"--no-pager", "--output=json", "--all"} <= set(options), argv
    if (ROOT / "fake/silent").exists():
        time.sleep(60)
    entries = json.loads((ROOT / "fake/journal.json").read_text())
    cursor = next((one.partition("=")[2] for one in options if one.startswith("--cursor=")), None)
    if cursor is not None:
        # What is gone is taken for the place where it was: cursors of tests are c0001, c0002, ...
        entries = [entry for entry in entries if entry["__CURSOR"] >= cursor]
    fields = next(one.partition("=")[2].split(",") for one in options if one.startswith("--output-fields="))
    for entry in entries:
        if matches(entry, [one for one in argv if not one.startswith("--")]):
            kept = {name: entry[name] for name in (*ALWAYS, *fields) if name in entry}
            sys.stdout.write(json.dumps(kept))
            sys.stdout.write("\n")
            if "exit" in entry:
                sys.exit("told to fail")


if __name__ == "__main__":
    main(sys.argv[1:])
