"""`python -m tests.lab.host`: a host to look around in, with production, until Enter or Ctrl-C."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.lab.host import Lab

LAB = Path(os.environ.get("EXPCTL_LAB_DIR", "/var/tmp/expctl-lab"))  # noqa: S108 - kept between runs


def main() -> None:
    """Make it, say how to get in, wait, remove it."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(LAB, Path(folder))
        host = lab.host("gpu0", lab.addresses(Path(folder)))
        try:
            host.boot()
            host.install_production()
            sys.stdout.write(
                f"{host.name} is up; production serves at {host.url(8000, '/v1')}\n"
                f"  as root:   ssh -F {host.ssh_config} -l root {host.name}\n"
                f"  as expctl: ssh -F {host.ssh_config} {host.name}\n"
                f"  the cable: ip link set {host.cable.end} down\n"
                "Enter ends it.\n"
            )
            sys.stdout.flush()
            with suppress(KeyboardInterrupt, EOFError):
                input()
        finally:
            host.remove()


if __name__ == "__main__":
    main()
