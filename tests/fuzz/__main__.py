"""The long form: `python -m tests.fuzz --bodies 10000 --files 5000`. Ends with 1 when there are findings."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.fuzz import campaign, files, wire
from tests.fuzz.campaign import Finding, Result, Target


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--bodies", type=int, default=10_000, help="for all servers together (%(default)s)")
    parser.add_argument("--files", type=int, default=5_000, help="for all readers together (%(default)s)")
    parser.add_argument("--seed", default="pilotfish", help="names the inputs (%(default)s)")
    parser.add_argument("--only", action="append", metavar="TARGET", help="only this target; may be given again")
    parser.add_argument("--case", metavar="SEED", help="one input, by the seed that a finding names; needs --only")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # of the readers, which warn of what they pass over
    found = 0
    with tempfile.TemporaryDirectory(prefix="pilotfish-fuzz-") as folder:
        for name, opening, count in targets(Path(folder), arguments.bodies, arguments.files):
            if arguments.only and name not in arguments.only:
                continue
            started = time.monotonic()
            with opening as target:
                seed = arguments.case
                result = (
                    campaign.again(target, seed) if seed else campaign.run(target, count, arguments.seed, say_at_once)
                )
            say(result, time.monotonic() - started)
            found += len(result.findings)
    return 1 if found else 0


def targets(folder: Path, bodies: int, texts: int) -> Iterator[tuple[str, AbstractContextManager[Target], int]]:
    """Every target's name, how to open it, and its share of the inputs."""
    for server in wire.SERVERS:
        yield server.name, wire.serving(server, folder), -(-bodies // len(wire.SERVERS))
    for name, make in files.TARGETS.items():
        yield name, files.opened(make, folder / name), -(-texts // len(files.TARGETS))


def say_at_once(finding: Finding) -> None:
    print(f"found: {finding.seed}: {finding.fault.kind}", flush=True)  # noqa: T201  # a report


def say(result: Result, seconds: float) -> None:
    words = [f"{result.target}: {result.inputs} inputs in {seconds:.0f} s, {len(result.findings)} kinds of findings"]
    words += [f"- {finding} (seen {result.seen[finding.fault.kind]} times)" for finding in result.findings]
    print("\n".join(words), flush=True)  # noqa: T201  # a report


if __name__ == "__main__":
    sys.exit(main())
