"""The worker of a load, with the Python SDK: python3 worker.py URL CONCURRENCY."""

import sys

from milepost import Worker, skill


@skill("bench.step")
async def step(n: int) -> dict[str, int]:
    return {"n": n + 1}


Worker(sys.argv[1], skills=[step], concurrency=int(sys.argv[2])).run()
