"""`python -m pilotfish.daemon.cli`: the command line, for where the console script is not on the path."""

from pilotfish.daemon.cli import main

main()
