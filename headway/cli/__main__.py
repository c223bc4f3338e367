"""`python -m headway.cli` is `headway`."""

from headway.cli import main

main()
