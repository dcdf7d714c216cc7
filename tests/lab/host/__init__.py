"""A GPU host without GPUs: a container with a systemd and an sshd of its own, behind a cable that can be pulled.

`Lab` keeps what all hosts share; `LabHost` is one host, from its making to its removal. See CONTRIBUTING.md.
"""

from tests.lab.host.gpus import Foreign, GpuState
from tests.lab.host.lab import Lab, NewHost
from tests.lab.host.machine import LabHost
from tests.lab.host.waiting import NotTrue, wait_for

__all__ = ["Foreign", "GpuState", "Lab", "LabHost", "NewHost", "NotTrue", "wait_for"]
