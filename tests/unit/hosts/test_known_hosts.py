"""known_hosts files, read as OpenSSH reads them; and pinning."""

from __future__ import annotations

import base64
import stat
import subprocess
from pathlib import Path

import pytest

from service.domain.reasons import Reason
from workers.hosts.base import HostError
from workers.hosts.known_hosts import HostKey, Pins, name_of, pin_keys, pins_of
from workers.hosts.transport import TransportError

A, B, RSA = HostKey("ssh-ed25519", b"a" * 51), HostKey("ssh-ed25519", b"b" * 51), HostKey("ssh-rsa", b"r" * 51)


def line(names: str, key: HostKey) -> str:
    return f"{names} {key.kind} {base64.b64encode(key.blob).decode()} some comment\n"


def pins(tmp_path: Path, text: str, host: str = "gpu", port: int = 22, own: str | None = None) -> Pins:
    (tmp_path / "user").write_text(text)
    if own is not None:
        (tmp_path / "own").write_text(own)
    return pins_of(host, port, tmp_path / "own", [tmp_path / "user", tmp_path / "no such file"])


def reason(known: Pins, key: HostKey) -> str | None:
    try:
        known.check(key)
    except TransportError as error:
        return error.reason
    return None


def test_the_fingerprint_is_the_one_that_ssh_keygen_shows(tmp_path: Path) -> None:
    try:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    except FileNotFoundError:
        pytest.skip("needs ssh-keygen")
    shown = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key.pub"], check=True, capture_output=True, text=True).stdout
    kind, blob = (tmp_path / "key.pub").read_text().split()[:2]
    assert HostKey(kind, base64.b64decode(blob)).fingerprint in shown.split()


@pytest.mark.parametrize(
    ("names", "host", "port", "known"),
    [
        ("gpu", "gpu", 22, True),
        ("GPU,10.0.0.1", "gpu", 22, True),
        ("gpu", "GPU", 22, True),
        ("gpu", "gpu2", 22, False),
        ("[gpu]:2222", "gpu", 2222, True),
        ("[gpu]:2222", "gpu", 22, False),
        ("gpu", "gpu", 2222, True),
        ("*.lab", "gpu.lab", 22, True),
        ("*.lab,!gpu.lab", "gpu.lab", 22, False),
        ("!gpu.lab,*.lab", "gpu.lab", 22, False),
        ("gp?", "gpu", 22, True),
        ("[*]:2222", "gpu", 2222, True),
        ("[gpu]", "g", 22, False),
        ("fe80::1", "fe80::1", 22, True),
        ("# gpu", "gpu", 22, False),
        ("|1|bad|line", "gpu", 22, False),
    ],
)
def test_which_lines_name_a_host(tmp_path: Path, names: str, host: str, port: int, *, known: bool) -> None:
    assert reason(pins(tmp_path, line(names, A), host, port), A) == (None if known else Reason.HOST_KEY_UNKNOWN)


def test_hashed_names(tmp_path: Path) -> None:
    (tmp_path / "hashed").write_text(line("gpu", A) + line("[gpu]:2222", B))
    try:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", tmp_path / "hashed"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs ssh-keygen")
    text = (tmp_path / "hashed").read_text()
    assert "gpu" not in text
    assert reason(pins(tmp_path, text), A) is None
    assert reason(pins(tmp_path, text, "gpu", 2222), B) is None
    assert reason(pins(tmp_path, text, "other"), A) == Reason.HOST_KEY_UNKNOWN


def test_a_changed_key_names_both_and_the_line(tmp_path: Path) -> None:
    with pytest.raises(TransportError) as caught:
        pins(tmp_path, "# a remark\n" + line("gpu", A)).check(B)
    assert (caught.value.reason, caught.value.command) == (Reason.HOST_KEY_CHANGED, "not_executed")
    for word in (A.fingerprint, B.fingerprint, f"{tmp_path / 'user'} line 2"):
        assert word in caught.value.evidence


def test_any_pinned_key_will_do_and_their_types_are_asked_for_first(tmp_path: Path) -> None:
    known = pins(tmp_path, line("gpu", RSA) + line("gpu", A))
    assert reason(known, A) is None
    assert reason(known, RSA) is None
    assert known.kinds == ("ssh-rsa", "ssh-ed25519")


def test_a_key_of_the_usual_port_counts_at_another_but_may_differ_there(tmp_path: Path) -> None:
    known = pins(tmp_path, line("gpu", A), port=2222)
    assert reason(known, A) is None
    assert reason(known, B) == Reason.HOST_KEY_UNKNOWN
    assert reason(pins(tmp_path, line("gpu", A) + line("[gpu]:2222", B), port=2222), A) == Reason.HOST_KEY_CHANGED


def test_our_own_pin_goes_before_what_the_user_accepted(tmp_path: Path) -> None:
    assert reason(pins(tmp_path, line("gpu", B), own=line("gpu", A)), B) == Reason.HOST_KEY_CHANGED
    assert reason(pins(tmp_path, line("gpu", B), own=line("other", A)), B) is None


def test_a_revoked_key_is_refused_wherever_it_is_pinned(tmp_path: Path) -> None:
    assert reason(pins(tmp_path, "@revoked " + line("*", A), own=line("gpu", A)), A) == Reason.HOST_KEY_CHANGED


def test_certificates_are_said_to_be_unsupported(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="certificates of hosts are not supported") as caught:
        pins(tmp_path, "@cert-authority " + line("*", A)).check(B)
    assert caught.value.reason == Reason.HOST_KEY_UNKNOWN


def test_lines_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    assert reason(pins(tmp_path, "gpu\ngpu ssh-ed25519\ngpu ssh-ed25519 ***\n\xff\n" + line("gpu", A)), A) is None


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TransportError) as caught:
        pins_of("gpu", 22, tmp_path, [])
    assert caught.value.reason == Reason.PERMISSION_DENIED


def test_pinning_makes_a_private_file_and_adds_to_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "known_hosts"
    pin_keys(path, name_of("gpu", 2222), [A, RSA])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    pin_keys(path, "other", [B])
    pin_keys(path, "other", [B])
    assert len(path.read_text().splitlines()) == 3
    assert reason(pins_of("gpu", 2222, path, []), RSA) is None
    assert reason(pins_of("other", 22, path, []), B) is None
    assert [entry.name for entry in path.parent.iterdir()] == ["known_hosts"]


def test_pinning_ends_a_last_line_that_was_cut(tmp_path: Path) -> None:
    (tmp_path / "own").write_text(line("first", A).rstrip())
    pin_keys(tmp_path / "own", "gpu", [B])
    assert reason(pins_of("gpu", 22, tmp_path / "own", []), B) is None
    assert reason(pins_of("first", 22, tmp_path / "own", []), A) is None


def test_another_key_is_pinned_on_purpose_only(tmp_path: Path) -> None:
    path = tmp_path / "own"
    path.write_text("# kept\n" + line("gpu,friend", A) + line("*.lab,gpu", A) + line("gp?", A))
    before = path.read_text()
    with pytest.raises(HostError) as caught:
        pin_keys(path, "gpu", [B])
    assert caught.value.reason == Reason.HOST_KEY_CHANGED
    assert A.fingerprint in caught.value.evidence
    assert path.read_text() == before
    pin_keys(path, "gpu", [B], replace=True)
    assert reason(pins_of("gpu", 22, path, []), A) == Reason.HOST_KEY_CHANGED
    assert reason(pins_of("gpu", 22, path, []), B) is None
    for other in ("friend", "x.lab", "gpx"):
        assert reason(pins_of(other, 22, path, []), A) is None
    assert path.read_text().startswith("# kept\n")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("")
    (tmp_path / "own").symlink_to(tmp_path / "real")
    pin_keys(tmp_path / "own", "gpu", [A])
    assert (tmp_path / "own").is_symlink()
    assert (tmp_path / "real").read_text().startswith("gpu ssh-ed25519")


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError):
        pin_keys(tmp_path / "file" / "known_hosts", "gpu", [A])
