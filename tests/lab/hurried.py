"""`expctl` with less patience for drivers: what takes two minutes on a real host, where memory comes back late, takes seconds here."""

from __future__ import annotations

from expctl.main import main
from workers import production
from workers.steps import free_gpus

PATIENCE_S = 5.0

if __name__ == "__main__":
    production.GPU_PATIENCE_S = free_gpus.SETTLE_S = PATIENCE_S
    main()
