"""Shows that the tests notice mistakes in the parts that are hardest to change: one mistake at a time, in a copy.

python -m benchmarks.mutants list                    # what each mutant breaks, and which tests should notice it
python -m benchmarks.mutants run [--only TEXT ...]   # what is not stored yet; about 20 minutes for all
python -m benchmarks.mutants table                   # the stored results

A result is stored in results.jsonl once it is known, so ``run`` can be stopped and called again. It counts until the
mutant, its file or its tests change. ``run`` ends with 1 if a mutant survived, or if its text is no longer in its file.
Then a test is missing, the mutant changes nothing that matters (write another one), or it must follow the code.
The Kafka mutants need Java and Maven, as the tests do (CONTRIBUTING.md).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from benchmarks.mutants.commits import COMMITS
from benchmarks.mutants.kafka import KAFKA
from benchmarks.mutants.learning import LEARNING
from benchmarks.mutants.looks import LOOKS
from benchmarks.mutants.mutant import Mutant, StaleError
from benchmarks.mutants.rereading import REREADING
from benchmarks.mutants.results import Result, read_results, store_result, table
from benchmarks.mutants.sequences import SEQUENCES
from benchmarks.mutants.trial import ROOT, TrialError, copied

MUTANTS: tuple[Mutant, ...] = (*SEQUENCES, *REREADING, *COMMITS, *KAFKA, *LEARNING, *LOOKS)


def run(mutants: Sequence[Mutant]) -> int:
    """Try the mutants without a result that counts; return the exit code."""
    known = read_results()
    waiting = [each for each in mutants if not _counts(known.get(each.name), each)]
    n_failed = 0
    if waiting:
        with copied() as copy:
            tests = sorted({test for each in waiting for test in each.tests})
            print(f"{len(waiting)} mutants; first their tests without any", flush=True)
            if (failed := copy.first_failure(tests, limit_s=3_600)) is not None:
                print(f"error: {failed} fails without a mutant", file=sys.stderr)
                return 1
            for each in waiting:
                started_s = time.monotonic()
                try:
                    caught_by = copy.caught_by(each)
                except (StaleError, TrialError) as error:
                    print(f"error: {each.name}: {error}", file=sys.stderr, flush=True)
                    n_failed += 1
                    continue
                result = Result(each.name, each.digest(copy.root), caught_by, round(time.monotonic() - started_s, 1))
                store_result(result, [each.name for each in MUTANTS])
                print(f"{each.name}: {caught_by or 'SURVIVED'} ({result.seconds:.0f} s)", flush=True)
    results = read_results()
    found = [results[each.name] for each in mutants if each.name in results]
    print(table(found))
    return int(n_failed > 0 or any(result.caught_by is None for result in found))


def _counts(result: Result | None, mutant: Mutant) -> bool:
    return result is not None and result.caught_by is not None and result.digest == mutant.digest(ROOT)


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("list", "run", "table"))
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="mutants whose name contains a text")
    arguments = parser.parse_args()
    mutants = [each for each in MUTANTS if any(text in each.name for text in arguments.only)]
    if arguments.command == "run":
        return run(mutants)
    if arguments.command == "table":
        results = read_results()
        print(table(results[each.name] for each in mutants if each.name in results))
        return 0
    for each in mutants:
        print(f"{each.name} ({each.file})\n    {each.breaks}\n    {' '.join(each.tests)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
