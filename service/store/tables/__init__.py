"""The tables. Invariants live here, where no code can forget them."""

from sqlmodel import SQLModel

from service.store.columns import utc_now
from service.store.tables.access import TokenRow
from service.store.tables.experiment import BaselineRow, DependencyRow, EventRow, ExperimentRow, IdempotencyRow, LogRow, StepRow
from service.store.tables.host import HostRequestRow, HostRow, InstallationRow, ShiftRow
from service.store.tables.message import AttemptRow, DeliveryRow, MarkRow, NotifierRow
from service.store.tables.operation import DurationRow, SingletonRow, WorkerRow
from service.store.tables.result import BenchPhaseRow, RequestRow, SpeculationRow

metadata = SQLModel.metadata

__all__ = [
    "AttemptRow",
    "BaselineRow",
    "BenchPhaseRow",
    "DeliveryRow",
    "DependencyRow",
    "DurationRow",
    "EventRow",
    "ExperimentRow",
    "HostRequestRow",
    "HostRow",
    "IdempotencyRow",
    "InstallationRow",
    "LogRow",
    "MarkRow",
    "NotifierRow",
    "RequestRow",
    "ShiftRow",
    "SingletonRow",
    "SpeculationRow",
    "StepRow",
    "TokenRow",
    "WorkerRow",
    "metadata",
    "utc_now",
]
