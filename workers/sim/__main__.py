"""`python -m workers.sim serve MODEL [flags]`."""

from __future__ import annotations

import sys

from workers.sim.serve import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
