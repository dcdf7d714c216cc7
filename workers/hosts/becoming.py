"""With whose eyes a script looks. Standard library only: this text is sent to hosts together with the script."""

from __future__ import annotations

import os
import pwd
from typing import Any


def become(user: Any) -> str:
    """Root looks with the eyes of whoever runs the engine; anybody else can only be who they are. Gives who that is."""
    if os.geteuid() == 0 and user and user != "root":
        entry = pwd.getpwnam(user)
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
        os.environ.update({"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name})
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
