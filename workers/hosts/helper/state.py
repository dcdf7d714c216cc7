"""What is remembered between calls, in /var/lib/expctl-host: who holds the host, and what has to be brought back."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from workers.hosts.helper.config import Config
from workers.hosts.helper.files import locked, make_folder, read_ours, remove, write_ours
from workers.hosts.helper.places import Clock, Places, stamp
from workers.hosts.helper.refusals import CLAIM_LOST, CONNECTION_LOST, HOST_REBOOTED, Misuse, Refused
from workers.hosts.helper.request import LISTED_UNIT, OWNER, SENTENCE, SHA256, UUID, Fields, parsed, plain

STATE_WAIT_S = 10.0
WORK_WAIT_S = 20.0
DEADLINE, REBOOT, UNREADABLE = "deadline", "reboot", "record_unreadable"


@dataclass(frozen=True)
class Claim:
    """Who asks for a change: an installation of expctl, its worker, and the number that grows with every claim of the host."""

    service: str
    owner: str
    fence: int


def claim_of(fields: Fields) -> Claim:
    """The claim in a request."""
    inner = Fields(fields.take("claim"), "claim")
    claim = Claim(inner.text("service", UUID), inner.text("owner", OWNER), inner.integer("fence", 0, 2**63 - 1))
    inner.done()
    return claim


@dataclass
class Record:
    """What has to be brought back, until when the worker must have said that it lives, and what the dead-man did.

    A newer helper must be able to read what an older one wrote: a new field needs a default, and none is ever renamed. Else an
    update in the middle of a shift makes the record unreadable, and the dead-man acts.
    """

    parked: list[dict[str, Any]]
    note: dict[str, Any]
    holder: dict[str, Any]
    armed_at: float
    ttl_s: float
    boot_id: str
    deadline_since_boot: float
    deadline_wall: float
    fired_at: float | None = None
    fired_why: str | None = None
    restored: list[dict[str, Any]] = field(default_factory=list)
    restored_at: float | None = None
    settled: bool = False
    left_over: list[int] = field(default_factory=list)

    @property
    def units(self) -> list[str]:
        """The parked units, in order."""
        return [one["unit"] for one in self.parked]

    def renew(self, clock: Clock, ttl_s: float) -> None:
        """Move the deadline."""
        self.ttl_s = ttl_s
        self.boot_id = clock.boot_id()
        self.deadline_since_boot = clock.since_boot() + ttl_s
        self.deadline_wall = clock.wall() + ttl_s

    def seconds_left(self, clock: Clock) -> float:
        """Until the deadline; negative once it has passed.

        In this boot, by a clock that nobody can set. After a reboot, by the wall's clock, but no longer than the whole time since boot:
        the wall's clock may be years behind until it is set.
        """
        if clock.boot_id() == self.boot_id:
            return self.deadline_since_boot - clock.since_boot()
        return min(self.deadline_wall - clock.wall(), self.ttl_s - clock.since_boot())

    def why_due(self, clock: Clock) -> str | None:
        """Why it is time to bring things back; None while it is not."""
        if self.seconds_left(clock) > 0:
            return None
        return DEADLINE if clock.boot_id() == self.boot_id else REBOOT

    def shown(self, clock: Clock) -> dict[str, Any]:
        """As JSON, for an answer."""
        return {
            "parked": self.parked,
            "note": self.note,
            "armed_at": stamp(self.armed_at),
            "ttl_s": self.ttl_s,
            "deadline": stamp(self.deadline_wall),
            "seconds_left": round(self.seconds_left(clock), 1),
            "boot_id": self.boot_id,
            "holder": self.holder,
            "left_over": self.left_over,
            **self.story(),
        }

    def story(self) -> dict[str, Any]:
        """What the dead-man did."""
        return {
            "fired_at": None if self.fired_at is None else stamp(self.fired_at),
            "fired_why": self.fired_why,
            "restored": self.restored,
            "restored_at": None if self.restored_at is None else stamp(self.restored_at),
        }


def ordered_record(value: Any, config: Config) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What a first `arm` wants brought back: the parked units and a note, checked."""
    fields = Fields(value, "record")
    parked, note = fields.take("parked"), fields.take("note")
    fields.done()
    if not isinstance(parked, list) or not isinstance(note, (dict, type(None))):
        raise Misuse("record: parked must be a list, note an object")
    checked = [_parked(one, config) for one in parked]
    if len({one["unit"] for one in checked}) != len(checked):
        raise Misuse("record: a unit stands twice under parked")
    return checked, note or {}


def _parked(value: Any, config: Config) -> dict[str, Any]:
    fields = Fields(value, "record: a parked unit")
    unit = config.parked_unit(fields.text("unit", LISTED_UNIT))
    sha256, argv, proof = fields.text("sha256", SHA256), fields.texts("live_argv"), fields.take("proof")
    fields.done()
    if not isinstance(proof, (dict, type(None))):
        raise Misuse("record: proof must be an object")
    return {"unit": unit, "sha256": sha256, "live_argv": argv, "proof": proof or {}}


class UnreadableRecord(Exception):
    """There is a record, and nobody can say what it says."""


class State:
    """The two files, and two locks.

    One is held for as long as units are worked on, one only while the files are looked at or changed, so that a heartbeat need not
    wait until a unit has stopped.
    """

    def __init__(self, places: Places, clock: Clock) -> None:
        self._folder = places.state
        self._clock = clock

    @contextlib.contextmanager
    def working(self, within_s: float = WORK_WAIT_S) -> Iterator[None]:
        """Hold the right to change units. Refused where another call has it for longer."""
        with locked(self._folder / "work.lock", within_s):
            yield

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Hold the right to look at the files and change them."""
        make_folder(self._folder)
        with locked(self._folder / "state.lock", STATE_WAIT_S):
            yield

    def holder(self) -> dict[str, Any] | None:
        """Who holds the host."""
        kept = self._kept_claim()
        return None if kept is None or kept["released"] else {name: kept[name] for name in ("service", "owner", "fence", "since")}

    def _kept_claim(self) -> dict[str, Any] | None:
        raw = read_ours(self._folder / "claim.json")
        if raw is None:
            return None
        fields = Fields(parsed(raw, "claim.json"), "claim.json")
        return {
            "service": fields.text("service", UUID),
            "owner": fields.text("owner", OWNER),
            "fence": fields.integer("fence", 0, 2**63 - 1),
            "since": fields.text("since", SENTENCE),
            "released": fields.flag("released"),
        }

    def take(self, claim: Claim) -> dict[str, Any]:
        """Become or stay the holder. Refused where a newer worker of the same installation is, or another installation that lives."""
        kept = self._kept_claim()
        holder = self.holder()
        if kept is not None and kept["service"] == claim.service and kept["fence"] > claim.fence:
            # Also once it has been let go: a worker that slept through everything must not come back.
            raise Refused(CLAIM_LOST, f"{kept['owner']} holds this host with the newer fence {kept['fence']}", holder=holder)
        if holder is not None and holder["service"] != claim.service and self.armed():
            told = f"the expctl installation {holder['service']} (worker {holder['owner']}) holds this host since {holder['since']}"
            raise Refused(CLAIM_LOST, told, holder=holder)
        if holder is None or Claim(holder["service"], holder["owner"], holder["fence"]) != claim:
            holder = {**asdict(claim), "since": stamp(self._clock.wall())}
            self._write("claim.json", {**holder, "released": False})
        return holder

    def release(self) -> None:
        """Nobody holds the host. The fence is kept, so that an older worker stays shut out."""
        try:
            kept = self._kept_claim()
        except (Refused, Misuse):  # whatever it is, it holds nothing any more
            remove(self._folder / "claim.json")
            return
        if kept is not None and not kept["released"]:
            self._write("claim.json", {**kept, "released": True})

    def record(self) -> Record | None:
        """What has to be brought back. UnreadableRecord where the file is not ours any more or makes no sense."""
        try:
            raw = read_ours(self._folder / "record.json")
            if raw is None:
                return None
            return _checked_record(parsed(raw, "record.json"))
        except (Refused, Misuse, TypeError, KeyError) as error:
            raise UnreadableRecord(f"{self._folder / 'record.json'}: {error}") from error

    def armed(self) -> bool:
        """Whether the dead-man is armed and its time has not come. Refused where the record is unreadable."""
        record = self.record()
        return record is not None and record.fired_at is None and record.why_due(self._clock) is None

    def save(self, record: Record) -> None:
        """Write the record."""
        self._write("record.json", asdict(record))

    def forget(self) -> bool:
        """Take the record away; False where there was none."""
        return remove(self._folder / "record.json")

    def keep_unreadable(self) -> None:
        """Keep an unreadable record under a second name too, for whoever wants to find out."""
        with contextlib.suppress(OSError):
            os.link(self._folder / "record.json", self._folder / "record.unreadable.json", follow_symlinks=False)

    def _write(self, name: str, value: dict[str, Any]) -> None:
        make_folder(self._folder)
        write_ours(self._folder / name, json.dumps(value))


def _checked_record(value: dict[str, Any]) -> Record:
    record = Record(**value)
    for one in record.parked:
        if LISTED_UNIT.fullmatch(plain(one["unit"], "record.json: unit")) is None:
            raise Misuse(f"record.json names {one['unit']!r}")
    numbers = (record.armed_at, record.ttl_s, record.deadline_since_boot, record.deadline_wall)
    if not all(isinstance(one, (int, float)) for one in numbers) or not isinstance(record.boot_id, str):
        raise Misuse("record.json has no proper deadline")
    return record


def not_fired(record: Record | None) -> None:
    """Refuse, with the whole story, where the dead-man has acted meanwhile: the worker's picture of the host is wrong."""
    if record is None or record.fired_at is None:
        return
    told = f"the dead-man acted at {stamp(record.fired_at)}"
    if record.fired_why == REBOOT:
        raise Refused(HOST_REBOOTED, f"{told}, after a reboot; disarm once production serves", **record.story())
    raise Refused(CONNECTION_LOST, f"{told}, since nobody had renewed the deadline; disarm once production serves", **record.story())
