"""`python -m milepost worker module[:attribute] …`"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from .errors import MilepostError
from .logs import LogHandler
from .worker import Worker


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 done, 1 the server refused it, 2 wrong use."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=given.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger().addHandler(LogHandler())
    # Modules are looked for where the command was typed, as `python FILE` does.
    sys.path.insert(0, os.getcwd())
    try:
        worker = Worker(
            given.url,
            skills=given.skills,
            queues=given.queue or ["default"],
            concurrency=given.concurrency,
            token=given.token,
            grace=given.grace,
            capture_print=given.capture_print,
        )
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        worker.run()
    except MilepostError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m milepost")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    worker = commands.add_parser("worker", help="carry steps out", description="Carries steps out until it is stopped.")
    worker.add_argument(
        "skills", nargs="+", metavar="MODULE[:ATTRIBUTE]", help="a module with skills, a skill or a list"
    )
    worker.add_argument("--url", help="the server; default: MILEPOST_URL, or http://127.0.0.1:7400")
    worker.add_argument("--token", help="default: MILEPOST_TOKEN, which others cannot see in a list of processes")
    worker.add_argument("--queue", action="append", help="a queue to take from; may be repeated; default: default")
    worker.add_argument("--concurrency", type=int, default=16, help="tasks at once (default: %(default)s)")
    worker.add_argument(
        "--grace", type=float, default=30.0, help="seconds for what runs when it is stopped (default: 30)"
    )
    worker.add_argument(
        "--capture-print", action="store_true", help="what skills print goes to the logs of their steps"
    )
    worker.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


if __name__ == "__main__":
    sys.exit(main())
