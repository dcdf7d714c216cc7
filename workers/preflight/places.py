"""Paths that a command line names, and what a look at them says. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.domain.reasons import Reason
from workers.engines.base import Launch
from workers.engines.vllm_options import Line
from workers.preflight.arguments import speculation_of
from workers.preflight.findings import Finding, doubtful, good, unchecked, wrong

Seen = Mapping[str, Any]

FILES = (
    "chat-template", "tool-parser-plugin", "reasoning-parser-plugin", "ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "config",
    "trace-replay-file", "log-config-file", "quantization-param-path",
)  # fmt: skip
"""Options whose value is a file where it begins with a slash. One that is missing ends vLLM, some of them after the load."""
FOLDERS = ("tokenizer", "hf-config-path", "generation-config")
"""Options whose value may be the name of a repository, or a path."""
OTHER_LOADERS = frozenset(
    {"dummy", "runai_streamer", "runai_streamer_sharded", "tensorizer", "sharded_state", "bitsandbytes", "gguf", "mistral"}
)
"""Load formats that look for other files."""
LITTLE_MIB, NOTHING_MIB = 5 * 1024, 100


@dataclass(frozen=True)
class Asked:
    """What has to be looked at on the host."""

    program: str | None = None
    model: str | None = None
    draft: str | None = None
    cwd: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    """(option, path)."""
    disks: tuple[str, ...] = ("/tmp", "/var/log")  # noqa: S108 - where engines and the journal write
    load_format: str = "auto"
    own_config: bool = False
    """The model's config stands elsewhere."""
    notes: tuple[Finding, ...] = field(default=())
    """What no look can tell."""

    def question(self, user: str | None) -> dict[str, Any]:
        """As the host is asked."""
        return {
            "user": user,
            "programs": [self.program] if self.program else [],
            "models": [one for one in (self.model, self.draft) if one],
            "paths": [*dict.fromkeys(path for _, path in self.files), *([self.cwd] if self.cwd else [])],
            "disks": list(self.disks),
        }


def asked_of(launch: Launch, line: Line, model: str | None) -> Asked:
    """What a command line refers to on its host. `model` None: the line has none that is known."""
    word = launch.argv[0] if launch.argv else None
    config, _ = speculation_of(line)
    draft = str((config or {}).get("model") or "")
    given = [(f"--{name}", line.value(name) or "") for name in (*FILES, *FOLDERS)]
    files = tuple((name, value) for name, value in given if _is_path(value))
    notes: list[Finding] = []
    # A name without slashes is looked for as the login would, unless the experiment has a PATH of its own.
    findable = word is not None and (_is_path(word) or ("/" not in word and "PATH" not in launch.env))
    if not findable:
        notes.append(unchecked("program", f"whether {word} is there" if word else "it is known on the host only"))
    if model is not None and not _is_path(model):
        notes.append(
            unchecked("model", f"{model} is no path on the host: whether it is there, or can be fetched, only the engine will tell")
        )
    if draft and not _is_path(draft):
        notes.append(unchecked("draft model", f"{draft} is no path on the host: only the engine will tell"))
    if line.value("config"):
        notes.append(unchecked("arguments", f"what {line.value('config')} adds to the command line"))
    return Asked(
        program=word if findable else None,
        model=model if model is not None and _is_path(model) else None,
        draft=draft if _is_path(draft) else None,
        cwd=launch.cwd,
        files=files,
        load_format=line.value("load-format") or "auto",
        own_config=bool(line.of("hf-config-path")),
        notes=tuple(notes),
    )


def _is_path(word: str) -> bool:
    return word.startswith("/")


def check_places(asked: Asked, seen: Seen, whole_truth: str) -> Iterator[Finding]:
    """Every path. `whole_truth`: why a path that is hidden from the look may still be there for the engine; empty where it cannot."""
    if asked.program is not None:
        yield from _program(asked.program, seen["programs"][asked.program], whole_truth)
    if asked.cwd is not None:
        yield from _path("working directory", asked.cwd, seen["paths"][asked.cwd], whole_truth, Reason.EXEC_FAILED, folder=True)
    for option, path in asked.files:
        reason = Reason.MODEL_NOT_FOUND if option == "--tokenizer" else Reason.BAD_ARGUMENTS
        yield from _path(option, path, seen["paths"][path], whole_truth, reason)
    simulated = bool(asked.program and seen["programs"][asked.program].get("simulation"))
    if simulated:
        yield unchecked("model", "the engine is a simulation, which loads none")
    for about, folder in (("model", asked.model), ("draft model", asked.draft)):
        if folder is not None and not simulated:
            yield from _model(about, folder, seen["models"][folder], asked, whole_truth)
    yield from asked.notes


def _hidden(about: str, path: str, found: Seen, whole_truth: str) -> Finding:
    why = str(found.get("why") or "it may not be read")
    if whole_truth:
        return unchecked(about, f"{path}: {why}, {whole_truth}")
    return wrong(about, Reason.PERMISSION_DENIED, f"{path}: {why}", f"{path}: {why}", "let the engine's user read it")


def _program(word: str, found: Seen, whole_truth: str) -> Iterator[Finding]:
    if found["kind"] == "missing":
        text = f"the program is not there: {word}: No such file or directory"
        yield wrong("program", Reason.EXEC_FAILED, text, f"{word}: No such file or directory", "correct engine.executable")
    elif found["kind"] == "hidden":
        yield _hidden("program", word, found, whole_truth)
    elif found["kind"] != "file":
        yield wrong("program", Reason.EXEC_FAILED, f"{word} is no program but a {found['kind']}", remedy="correct engine.executable")
    elif not found["executable"]:
        if whole_truth:
            yield unchecked("program", f"{word} may not be executed by the login, {whole_truth}")
        else:
            yield wrong(
                "program", Reason.EXEC_FAILED, f"{word} may not be executed", remedy=f"chmod +x {word}, or correct engine.executable"
            )
    else:
        yield good("program", f"{found['path']}{_version(found)}")


def _version(found: Seen) -> str:
    dists = [str(one).removesuffix(".dist-info") for one in found.get("dists", ())]
    return f" ({', '.join(dists)})" if dists else ""


def _path(about: str, path: str, found: Seen, whole_truth: str, reason: Reason, *, folder: bool = False) -> Iterator[Finding]:
    if found["kind"] == "missing":
        evidence = f"{path}: No such file or directory"
        text = f"engine.cwd cannot be entered: {evidence}" if folder else f"{about}: {path} is not there"
        yield wrong(about, reason, text, evidence, f"correct {'engine.cwd' if folder else about}, or put it there")
    elif found["kind"] == "hidden" or not found["readable"]:
        yield _hidden(about, path, found, whole_truth)
    elif folder and found["kind"] != "folder":
        yield wrong(about, reason, f"engine.cwd cannot be entered: {path}: Not a directory", remedy="correct engine.cwd")
    else:
        yield good(about, path)


def _model(about: str, path: str, found: Seen, asked: Asked, whole_truth: str) -> Iterator[Finding]:
    if found["kind"] == "missing":
        text = f"the {about} {path} is not there"
        yield wrong(about, Reason.MODEL_NOT_FOUND, text, f"{path}: No such file or directory", "correct the path, or copy the model there")
        return
    if found["kind"] == "hidden" or not found.get("readable", False):
        yield _hidden(about, path, found, whole_truth)
        return
    if found["kind"] != "folder":
        yield good(about, path)
        return
    plain = about != "model" or asked.load_format in {"auto", "safetensors"}
    if not found["configured"] and not (asked.own_config and about == "model"):
        text = f"the {about} {path} has no config.json"
        yield wrong(about, Reason.MODEL_NOT_FOUND, text, remedy="name the folder that holds config.json and the weights")
    elif plain and not found["weights"]:
        yield wrong(about, Reason.MODEL_NOT_FOUND, f"the {about} {path} holds no weights", remedy="copy the model's weights there")
    elif plain and (found["missing"] or found["empty"]):
        names = ", ".join([*found["missing"], *found["empty"]][:3])
        text = f"the {about} {path} is incomplete: {names} {'is missing' if found['missing'] else 'is empty'}"
        yield wrong(about, Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS, text, text, "copy the model again and compare checksums")
    else:
        yield good(about, f"{path}, {found['bytes'] / 2**30:.1f} GiB of safetensors")


def check_disks(asked: Asked, seen: Seen, own: Mapping[str, int]) -> Iterator[Finding]:
    """Room on the host, and where the worker keeps logs and artifacts (`own`: path -> MiB free)."""
    free = {path: found.get("free_mib") for path, found in seen.get("disks", {}).items()} | dict(own)
    for path in [*(asked.disks if seen else ()), *own]:
        mib = free.get(path)
        if mib is None:
            yield unchecked("disk", f"how much is free at {path}")
        elif mib < NOTHING_MIB:
            yield wrong("disk", Reason.DISK_FULL, f"only {mib} MiB are free at {path}", remedy=f"free space at {path}")
        elif mib < LITTLE_MIB:
            yield doubtful("disk", f"only {mib} MiB are free at {path}: logs, caches and artifacts need room", f"free space at {path}")
    if free and all(mib is not None and mib >= LITTLE_MIB for mib in free.values()):
        yield good("disk", ", ".join(free) + " have room")
