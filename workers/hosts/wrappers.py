"""Programs that start another program: which of them let its command line be read and changed, and which do not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from service.domain.reasons import Reason
from workers.hosts.base import HostError

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=", re.DOTALL)


@dataclass(frozen=True)
class _Transparent:
    """It replaces itself by the program (exec), so the unit's main process is the program."""

    with_value: tuple[str, ...] = ()
    """Options whose value is the next word."""
    refused: tuple[str, ...] = ()
    """Options with which it is something else."""
    positionals: int = 0
    """Words of its own before the program."""


_TRANSPARENT: dict[str, _Transparent] = {
    "env": _Transparent(with_value=("-u", "--unset", "-C", "--chdir"), refused=("-S", "--split-string", "-i", "-", "--ignore-environment")),
    "nice": _Transparent(with_value=("-n", "--adjustment")),
    "ionice": _Transparent(with_value=("-c", "--class", "-n", "--classdata"), refused=("-p", "--pid")),
    "taskset": _Transparent(refused=("-p", "--pid"), positionals=1),
    "numactl": _Transparent(
        with_value=(
            "-N", "--cpunodebind", "-m", "--membind", "-C", "--physcpubind", "-i", "--interleave", "-w", "--weighted-interleave",
            "-p", "--preferred", "-P", "--preferred-many",
        )
    ),
    "stdbuf": _Transparent(with_value=("-i", "--input", "-o", "--output", "-e", "--error")),
    "nohup": _Transparent(),
}  # fmt: skip

_SHELL = "a shell reads its own language there: quotes, variables and `;` mean something else than in a unit"
_CONTAINER = "the engine runs in a container, whose arguments, environment, ports and GPUs are the container tool's business"
_ENVIRONMENT = "it starts the engine as a child in an environment of its own making"
_CHILD = "it starts the engine as a child, so that the unit's main process is not the engine"

_OPAQUE: dict[str, str] = {
    **dict.fromkeys(("sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox"), _SHELL),
    **dict.fromkeys(
        (
            "docker", "podman", "nerdctl", "ctr", "runc", "crun", "apptainer", "singularity", "enroot", "kubectl", "systemd-nspawn",
            "distrobox",
        ),
        _CONTAINER,
    ),
    **dict.fromkeys(("conda", "mamba", "micromamba", "uv", "uvx", "poetry", "pipenv", "pixi", "pdm", "hatch", "rye", "nix"), _ENVIRONMENT),
    **dict.fromkeys(
        (
            "sudo", "su", "runuser", "doas", "setsid", "timeout", "time", "script", "screen", "tmux", "tini", "dumb-init", "catatonit",
            "supervisord", "ssh", "srun", "mpirun", "torchrun", "accelerate", "deepspeed", "nsys", "ncu", "strace", "gdb", "flock",
            "xargs", "watch", "systemd-run", "systemd-inhibit", "unshare", "nsenter", "chroot",
        ),
        _CHILD,
    ),
}  # fmt: skip

_REMEDY: dict[str, str] = {
    _SHELL: "write the engine's command into ExecStart= itself, variables into Environment= or EnvironmentFile=",
    _CONTAINER: "give the experiment engine.model and engine.executable instead of from_unit, with an engine installed on the host",
    _ENVIRONMENT: "name the environment's own program in ExecStart=, such as /opt/conda/envs/NAME/bin/vllm",
    _CHILD: "write the engine's command into ExecStart= itself; User=, LimitNOFILE= and the like do what such a program is used for",
}


def skip_transparent(unit: str, words: Sequence[str]) -> int:
    """How many words come before the real program. Raises HostError where the program is hidden."""
    at = 0
    while at < len(words):
        program = words[at].rpartition("/")[2]
        if program in _OPAQUE or program.endswith((".sh", ".bash")):
            raise hidden(unit, program, _OPAQUE.get(program, _SHELL))
        if program not in _TRANSPARENT:
            return at
        at = _after(unit, words, at, program, _TRANSPARENT[program])
    raise HostError(Reason.UNIT_SYNTAX, f"ExecStart= of {unit} names no program after {words[0]}")


def hidden(unit: str, program: str, why: str = _SHELL) -> HostError:
    """The refusal of a command line that is somebody else's to read."""
    return HostError(
        Reason.UNIT_SYNTAX, f"{unit} cannot be forked: its ExecStart= runs the engine through {program}, and {why}; {_REMEDY[why]}"
    )


def _after(unit: str, words: Sequence[str], at: int, program: str, how: _Transparent) -> int:
    """Where the words of a transparent program end."""
    at += 1
    while at < len(words) and (words[at].startswith("-") or (program == "env" and _ASSIGNMENT.match(words[at]))):
        option = words[at].partition("=")[0]
        if option in how.refused or (program == "env" and option.startswith("-S")):
            raise hidden(unit, f"{program} {option}")
        if words[at] == "--":
            at += 1
            break
        at += 2 if words[at] in how.with_value else 1
    return at + how.positionals
