"""Where the command line finds its token: EXPCTL_TOKEN, else a file of the user that nobody else can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from service.domain.errors import NotSignedIn


def token_file() -> Path:
    """`$XDG_CONFIG_HOME/expctl/token`."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if folder.startswith("/") else Path.home() / ".config") / "expctl" / "token"


def token() -> str | None:
    """The token, or None where there is none. A file that others can read is refused: its token may be known to them."""
    if "EXPCTL_TOKEN" in os.environ:
        return _checked(os.environ["EXPCTL_TOKEN"], "EXPCTL_TOKEN") if os.environ["EXPCTL_TOKEN"].strip() else None
    path = token_file()
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(1000)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NotSignedIn(f"the token in {path} cannot be read", error.strerror or str(error), f"chmod 600 {path}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        why = f"its mode is {stat.S_IMODE(mode):o}, so others on this machine may know it"
        raise NotSignedIn(f"the token in {path} is not used", why, f"chmod 600 {path}, and revoke it if somebody may have read it")
    return _checked(text, str(path)) if text.strip() else None


def _checked(text: str, where: str) -> str:
    """The token without the space around it; the words never show it."""
    from service.domain.tokentext import well_formed  # noqa: PLC0415 - only who has a token pays for it

    found = text.strip()
    if not well_formed(found):
        raise NotSignedIn(f"{where} holds no whole token", "a letter of it is wrong, or it was cut off", "copy it again")
    return found
