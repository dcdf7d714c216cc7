"""The figures in the line that tells why: what was wanted, what was there, which argument, which port."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping

from service.domain.reasons import Reason

Facts = dict[str, object]

_NUMBER = r"(\d{1,12}(?:\.\d{1,6})?)"
_UNITS = {"bytes": 2**-30, "b": 2**-30, "kib": 2**-20, "mib": 2**-10, "mb": 2**-10, "gib": 1.0, "gb": 1.0, "tib": 1024.0}
_AMOUNT = rf"{_NUMBER} (bytes|KiB|MiB|MB|GiB|GB|TiB)"

_LENGTH = re.compile(r"max seq len \((\d{1,12})\)")
_NEEDED = re.compile(rf"\(?{_NUMBER} GiB KV cache is needed")
_AVAILABLE = re.compile(rf"available KV cache memory \({_NUMBER} GiB\)")
_ESTIMATE = re.compile(r"estimated maximum model length is (\d{1,12})")
_STORABLE = re.compile(r"can be stored in KV cache \((\d{1,12})\)")
_FREE = re.compile(rf"Free memory on device ?(\S{{1,20}}?)? ?\({_NUMBER}/{_NUMBER} GiB\) on startup")
_WANTED = re.compile(rf"desired GPU memory utilization \({_NUMBER}, {_NUMBER} GiB\)")
_RACE = re.compile(rf"Initial free memory {_NUMBER}.{{0,20}}?, current free memory {_NUMBER}")
_TRIED = re.compile(rf"Tried to allocate {_AMOUNT}")
_CAPACITY = re.compile(rf"GPU (\d{{1,3}}) has a total capacity of {_AMOUNT} of which {_AMOUNT} is free")
_OLD_CAPACITY = re.compile(rf"\(GPU (\d{{1,3}}); {_AMOUNT} total capacity; {_AMOUNT} already allocated; {_AMOUNT} free")
_PROCESS = re.compile(rf"Process (\d{{1,10}}) has {_AMOUNT} memory in use")
_OWN = re.compile(rf"this process has {_AMOUNT} memory in use")
_TORCH = re.compile(rf"{_AMOUNT} is allocated by PyTorch")
_RESERVED = re.compile(rf"{_AMOUNT} is reserved by PyTorch but unallocated")
_CPP_TRIED = re.compile(rf"allocating {_AMOUNT} on device (\d{{1,3}})")
_PORTS = (
    re.compile(r"\('[^']{0,80}', (\d{1,5})(?:, \d{1,9}, \d{1,9})?\)"),
    re.compile(r"\bport[:= ] ?(\d{1,5})\b", re.IGNORECASE),
    re.compile(r"(?:\d{1,3}(?:\.\d{1,3}){3}|\]|localhost):(\d{1,5})\b"),
)
_UNRECOGNIZED = re.compile(r"unrecognized arguments?: (\S{1,200})")
_ARGUMENT = re.compile(r"argument (-[\w.-]{1,100})(?:/-[\w.-]{1,100}){0,4}: (.{0,300})")
_CPP_ARGUMENT = re.compile(r"invalid argument: (\S{1,200})|while handling argument \"(-[^\"]{1,100})\"")
_AMBIGUOUS = re.compile(r"ambiguous option: (-[\w.-]{1,100})\S* could match (.{0,300})")
_DIVISIBLE = re.compile(r"\((\d{1,6})\) must be divisible by tensor parallel size \((\d{1,4})\)")
_WORLD = re.compile(r"World size \((\d{1,6})\) is larger than the number of available GPUs \((\d{1,4})\)")
_TOO_LONG = re.compile(r"max_model_len \((\d{1,12})\) is greater than the derived max_model_len \((?:[\w]{1,60}=)?(\d{1,12})")
_LOOKUP = re.compile(r"prompt_lookup_min={?(\d{1,6})}? must be <= prompt_lookup_max={?(\d{1,6})")
_CHOICE = re.compile(r"argument (-[\w.-]{1,100})(?:/-[\w.-]{1,100}){0,4}: invalid choice: '?([^' ]{1,100})'? \(choose from (.{1,3000})\)")
_LITERAL = re.compile(r"Input should be (.{1,3500}?) \[type=literal_error, input_value='([^']{1,100})'")
_NAMED_FLAG = re.compile(
    r"[Pp]lease pass the (?:argument|flag|option) `(?:--)?([a-z][\w-]{1,60})|setting the `(?:--)?([a-z][\w-]{1,60})` flag"
)
_TP = "--tensor-parallel-size"
_EXIT_CODE = re.compile(r"[Ww]orker (?:proc )?(\S{1,80})(?: pid \d{1,10})? died(?: unexpectedly)?(?:,? \(?exit code: (-?\d{1,5}|None)\)?)?")
_FAILED_PROCS = re.compile(r"Failed core proc\(s\): \{'(\w{1,40})': (-?\d{1,5})")
_PATHS = (
    re.compile(r"Repo id must be .{0,80}?: '([^']{1,400})'"),
    re.compile(r"specified: ['\"]([^'\"]{1,400})['\"]"),
    re.compile(r"model weights with `([^`]{1,400})`"),
    re.compile(r"(?:OSError: |^)(\S{1,400}) (?:does not appear to have|is not a local folder)"),
    re.compile(r"No such file or directory: ['\"]?([^'\"\s]{1,400})"),
    re.compile(r"Can't load [\w ]{1,60} (?:of|for) '([^']{1,400})'"),
    re.compile(r"No space left on device: ['\"]?([^'\"\s]{1,400})"),
    re.compile(r"failed to open GGUF file ['\"]?([^'\"]{1,400}?)['\"]?(?: \(|$)"),
    re.compile(r"(?:failed to load model,? |loading model )['\"]([^'\"]{1,400})['\"]"),
    re.compile(r"segment (/dev/shm/\S{1,200})"),
)
_ARCHITECTURE = re.compile(
    r"Model architectures? \[?'?([\w.-]{1,120})|unknown model architecture: '([\w.-]{1,120})'|model type `([\w.-]{1,120})`"
    r"|(\w{1,120}) has no (?:vLLM|SGLang) implementation"
)
_DRIVER = re.compile(r"found version (\d{1,6})")


def figures_of(reason: Reason, evidence: str, known: Mapping[str, object]) -> Facts:
    """The figures that go with a cause. `known` is what the log had said before."""
    read = _READERS.get(reason)
    return {} if read is None else {name: value for name, value in read(evidence, known).items() if value is not None}


def gib(number: str, unit: str) -> float:
    """An amount as PyTorch writes it, in GiB."""
    return round(float(number) * _UNITS[unit.lower()], 3)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match else None


def _float(text: str | None) -> float | None:
    return None if text is None else float(text)


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _kv_cache(text: str, known: Mapping[str, object]) -> Facts:
    return {
        "requested_max_model_len": _int(_first(_LENGTH, text)),
        "needed_gib": _float(_first(_NEEDED, text)),
        "available_gib": _float(_first(_AVAILABLE, text)) or known.get("available_kv_cache_gib"),
        "estimated_max_model_len": _int(_first(_ESTIMATE, text) or _first(_STORABLE, text)),
    }


def _not_free(text: str, _known: Mapping[str, object]) -> Facts:
    free, wanted = _FREE.search(text), _WANTED.search(text)
    found: Facts = {}
    if free:
        total, left = float(free[3]), float(free[2])
        found = {"device": free[1] or None, "free_gib": left, "total_gib": total, "not_free_gib": round(total - left, 2)}
    if wanted:
        found |= {"wanted_fraction": float(wanted[1]), "wanted_gib": float(wanted[2])}
    return found


def _race(text: str, _known: Mapping[str, object]) -> Facts:
    match = _RACE.search(text)
    return {"initial_free_gib": float(match[1]), "current_free_gib": float(match[2])} if match else {}


def _out_of_memory(text: str, _known: Mapping[str, object]) -> Facts:
    """Also whose memory it is.

    Inside a container the driver gives pids of the host, so that the engine's own process looks like a stranger: the one that
    alone is large enough for what PyTorch has allocated is itself.
    """
    tried, capacity, old = _TRIED.search(text), _CAPACITY.search(text), _OLD_CAPACITY.search(text)
    found: Facts = {"tried_gib": gib(*tried.groups()) if tried else None}
    if capacity:
        found |= {"gpu": int(capacity[1]), "total_gib": gib(capacity[2], capacity[3]), "free_gib": gib(capacity[4], capacity[5])}
    elif old:
        found |= {
            "gpu": int(old[1]),
            "total_gib": gib(old[2], old[3]),
            "own_pytorch_gib": gib(old[4], old[5]),
            "free_gib": gib(old[6], old[7]),
        }
    cpp = _CPP_TRIED.search(text)
    if cpp:
        found |= {"tried_gib": gib(cpp[1], cpp[2]), "gpu": int(cpp[3])}
    return {**found, **_shares(text)}


def _shares(text: str) -> Facts:
    processes = {int(pid): gib(number, unit) for pid, number, unit in _PROCESS.findall(text)}
    own, torch, reserved = _OWN.search(text), _TORCH.search(text), _RESERVED.search(text)
    found: Facts = {}
    allocated = gib(*torch.groups()) if torch else None
    if allocated:
        found["own_pytorch_gib"] = allocated
    if own:
        found["own_gib"] = gib(*own.groups())
    elif allocated and processes:
        least = allocated + (gib(*reserved.groups()) if reserved else 0.0)
        fitting = [pid for pid, used in processes.items() if used >= least - 0.01]
        if len(fitting) == 1:
            found |= {"own_pid": fitting[0], "own_gib": processes.pop(fitting[0])}
    if processes or own or "own_pid" in found:
        found["others_gib"] = round(sum(processes.values()), 3)
    return found


def _port(text: str, known: Mapping[str, object]) -> Facts:
    return {"port": next((int(match[1]) for pattern in _PORTS if (match := pattern.search(text))), known.get("port"))}


def _arguments(text: str, _known: Mapping[str, object]) -> Facts:
    for pattern, read in _OF_ARGUMENTS:
        match = pattern.search(text)
        if match:
            return read(match)
    return {"argument": "--speculative-config"} if re.search(r"num_speculative_tokens|SpeculativeConfig", text) else {}


def _choice(value: str, listed: str) -> Facts:
    """A value that is none of those that may be, and the one that was most likely meant."""
    close = difflib.get_close_matches(value, re.findall(r"'([^']{1,100})'", listed)[:500], n=1)
    return {"value": value, "nearest": close[0] if close else None}


def _bare(word: str) -> str:
    return word.partition("=")[0] if word.startswith("-") else word


_OF_ARGUMENTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Facts]], ...] = (
    (_UNRECOGNIZED, lambda found: {"argument": _bare(found[1])}),
    (_AMBIGUOUS, lambda found: {"argument": found[1], "candidates": found[2].strip()}),
    (_CPP_ARGUMENT, lambda found: {"argument": found[1] or found[2]}),
    (_DIVISIBLE, lambda found: {"argument": _TP, "attention_heads": int(found[1]), "tensor_parallel_size": int(found[2])}),
    (_WORLD, lambda found: {"argument": _TP, "world_size": int(found[1]), "gpus": int(found[2])}),
    (
        _TOO_LONG,
        lambda found: {"argument": "--max-model-len", "requested_max_model_len": int(found[1]), "model_max_len": int(found[2])},
    ),
    (
        _LOOKUP,
        lambda found: {"argument": "--speculative-config", "prompt_lookup_min": int(found[1]), "prompt_lookup_max": int(found[2])},
    ),
    (_CHOICE, lambda found: {"argument": found[1], **_choice(found[2], found[3])}),
    (_LITERAL, lambda found: {"argument": "--speculative-config" if "'ngram'" in found[1] else None, **_choice(found[2], found[1])}),
    (_ARGUMENT, lambda found: {"argument": found[1]}),
    (_NAMED_FLAG, lambda found: {"argument": "--" + (found[1] or found[2]).replace("_", "-")}),
)


def _path(text: str, _known: Mapping[str, object]) -> Facts:
    return {"path": next((match[1] for pattern in _PATHS if (match := pattern.search(text))), None)}


def _architecture(text: str, _known: Mapping[str, object]) -> Facts:
    match = _ARCHITECTURE.search(text)
    return {"architecture": next(filter(None, match.groups()))} if match else {}


def _worker(text: str, _known: Mapping[str, object]) -> Facts:
    if match := _EXIT_CODE.search(text):
        code = None if match[2] in {None, "None"} else int(match[2])
        return {"component": match[1], "worker_exit_code": code, "signal": -code if code is not None and code < 0 else None}
    if match := _FAILED_PROCS.search(text):
        code = int(match[2])
        return {"component": match[1], "worker_exit_code": code, "signal": -code if code < 0 else None}
    return {}


def _driver(text: str, _known: Mapping[str, object]) -> Facts:
    return {"driver_cuda_version": _first(_DRIVER, text)}


_READERS: dict[Reason, Callable[[str, Mapping[str, object]], Facts]] = {
    Reason.KV_CACHE_TOO_SMALL: _kv_cache,
    Reason.GPU_MEMORY_NOT_FREE_AT_START: _not_free,
    Reason.MEMORY_PROFILING_RACE: _race,
    Reason.CUDA_OUT_OF_MEMORY: _out_of_memory,
    Reason.PORT_IN_USE: _port,
    Reason.BAD_ARGUMENTS: _arguments,
    Reason.MODEL_NOT_FOUND: _path,
    Reason.DISK_FULL: _path,
    Reason.NCCL_INIT_ERROR: _path,
    Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS: _path,
    Reason.UNSUPPORTED_ARCHITECTURE: _architecture,
    Reason.ENGINE_DEAD: _worker,
    Reason.DRIVER_TOO_OLD: _driver,
}
