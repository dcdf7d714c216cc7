"""What the kernel says of GPUs and memory."""

from __future__ import annotations

import re

from service.domain.reasons import Reason
from workers.diagnosis.cause import Cause, Weight

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]{4,20})\): (?P<number>\d{1,4})(?P<rest>.{0,300})")
_KILLED = re.compile(
    r"(?:Out of memory|Memory cgroup out of memory|oom-kill).{0,80}?Killed process (?P<pid>\d{1,10}),? \((?P<name>[^)]{0,64})\)"
)
_ANON = re.compile(r"anon-rss:(\d{1,15})kB")
_OOM_LINE = re.compile(r"oom-kill:constraint=(?P<constraint>\w{1,40}).{0,600}?task=(?P<name>[^,]{1,64}),pid=(?P<pid>\d{1,10})")
_INVOKED = re.compile(r"invoked oom-killer")
_BUS = re.compile(
    r"GPU at (?:PCI:)?[0-9a-fA-F:.]{4,20} has fallen off the bus|GPU has fallen off the bus|NVRM: .{0,120}fallen off the bus"
    r"|amdgpu.{0,80}(?:device lost|GPU reset failed)"
)
_SEGFAULT = re.compile(r"(?P<name>\S{1,64})\[(?P<pid>\d{1,10})\]: (?:segfault at|general protection)")
_MISMATCH = re.compile(r"NVRM: API mismatch: the client has the version (?P<client>[\d.]{3,20})")

LOST = frozenset({79})
HARDWARE = frozenset({48, 54, 62, 63, 64, 74, 78, 92, 94, 95, 110, 119, 120, 121, 137, 140, 143, 144, 145, 149, 154, 155, 156, 158})
"""Xid numbers that name the card, its memory, its link or its firmware. Others may be a program's own fault."""
_WORDS = {
    13: "usually the program's fault, unless it comes with others",
    31: "usually the program's fault: it used an address that it does not own",
    43: "the program's work was stopped; the card itself is well",
    45: "clean-up after another fault: look at the Xid before it",
}


def kernel_cause(message: str) -> Cause | None:
    """What a line of the kernel's names; None for any other line."""
    if match := _XID.search(message):
        number = int(match["number"])
        facts = {"xid": number, "pci": match["bus"]}
        if number in LOST or "fallen off the bus" in match["rest"]:
            return Cause(Reason.GPU_LOST, Weight.OUTSIDE, message.strip()[:500], facts=facts)
        return Cause(Reason.GPU_HARDWARE_ERROR, Weight.OUTSIDE, message.strip()[:500], facts=facts) if number in HARDWARE else None
    if _BUS.search(message):
        return Cause(Reason.GPU_LOST, Weight.OUTSIDE, message.strip()[:500])
    if match := _KILLED.search(message) or _OOM_LINE.search(message):
        return _oom(match, message)
    if match := _MISMATCH.search(message):
        return Cause(
            Reason.DRIVER_LIBRARY_MISMATCH, Weight.OUTSIDE, message.strip()[:500], facts={"nvml_version": match["client"].rstrip(".")}
        )
    return None


def _oom(match: re.Match[str], message: str) -> Cause:
    facts: dict[str, object] = {"pid": int(match["pid"]), "process": match["name"]}
    memory = _ANON.search(message)
    if memory:
        facts["used_gib"] = round(int(memory[1]) / 2**20, 2)
    if "cgroup" in message or "MEMCG" in message:
        facts["limit"] = "the unit's own memory limit (MemoryMax=), not the host's"
    return Cause(Reason.HOST_OUT_OF_MEMORY, Weight.OUTSIDE, message.strip()[:500], component=match["name"], facts=facts)


def kernel_warning(message: str) -> str | None:
    """A word on a line of the kernel's that is no cause by itself."""
    if match := _XID.search(message):
        number = int(match["number"])
        return None if number in HARDWARE | LOST else f"xid_{number}: {_WORDS.get(number, 'its meaning stands in the list of Xid numbers')}"
    if match := _SEGFAULT.search(message):
        return f"segfault: {match['name']} (pid {match['pid']}) broke off"
    return "oom_killer: the kernel was out of memory" if _INVOKED.search(message) else None
