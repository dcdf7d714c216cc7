"""`python -m expctl` is the `expctl` command."""

from expctl.main import main

main()
