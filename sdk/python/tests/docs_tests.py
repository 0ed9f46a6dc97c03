"""docs/python.md, run as it stands there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from support import ROOT, Server

PAGE = (ROOT / "docs/python.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def _hello() -> str:
    return next(block for block in _blocks("python") if block.startswith("# hello.py"))


def the_quick_start_is_true(shared_server: Server, tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(_hello())
    session = next(block for block in _blocks("console") if "$ python hello.py" in block)
    shown = session.split("$ python hello.py\n")[1]
    environment = {**os.environ, "MILEPOST_URL": shared_server.url}
    ran = subprocess.run([sys.executable, "hello.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (ran.stdout, ran.returncode) == (shown, 0), ran.stderr


def the_quick_start_is_short() -> None:
    lines = [line for line in _hello().splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) < 30


def the_test_without_a_server_is_true(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(_hello())
    (tmp_path / "local.py").write_text(next(block for block in _blocks("python") if "run_local(" in block))
    command = "import local; local.a_campaign_has_an_image_per_shot()"
    ran = subprocess.run([sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def the_types_of_the_quick_start_hold(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(_hello())
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "hello.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout


def every_example_can_be_read() -> None:
    for block in _blocks("python"):
        ast.parse(block)
