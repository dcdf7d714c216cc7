"""expctl demo: the main job on a simulated host, from two experiment files to a verdict."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expctl.client import Client
from expctl.datafolder import named, settings_of
from expctl.globals import options
from expctl.output import draw, emit, say
from service.domain.errors import ExpctlError

if TYPE_CHECKING:
    from service.settings import Settings

app = typer.Typer(add_completion=False)

HOST = "simulated"
SEED = "1"
LOAD_SECONDS = "3"


@app.command()
def demo(
    keep: Annotated[Path | None, typer.Option(parser=named, metavar="DIR", help="keep the demo's database and logs in this folder")] = None,
) -> None:
    """Run a baseline and an n-gram configuration on a SIMULATED host and compare them; about a minute.

    The engine and its GPUs are simulated with the figures of a real case: token times are real, only the load is shortened.
    """
    if keep is not None:
        _run(keep, kept=True)
        return
    with tempfile.TemporaryDirectory(prefix="expctl-demo-", ignore_cleanup_errors=True) as folder:
        _run(Path(folder))


def examples() -> Path:
    """The example files: inside the package when installed, at the top of the tree in a checkout."""
    packaged = Path(__file__).parents[1] / "examples"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "examples"


def _run(folder: Path, *, kept: bool = False) -> None:
    from expctl.embedded import Embedded  # noqa: PLC0415 - heavy
    from expctl.serve import free_port  # noqa: PLC0415 - heavy

    settings = settings_of(folder, make=True)
    say("SIMULATED: the host, its GPUs and the engine are simulated; token times are those of a real case, the load is shortened.")
    with Embedded(settings, free_port(), {HOST: _simulated_host(settings)}) as service, Client(service.url, signed_in=False) as client:
        ids = [_submit(client, name) for name in ("kimi-baseline.yaml", "kimi-ngram.yaml")]
        from expctl.views.watching import follow  # noqa: PLC0415 - drawing is not free

        if follow(client, ids, to_stderr=True) != 0:
            raise ExpctlError(
                "the demo's experiments did not succeed", "", f"run `expctl demo --keep DIR` and read DIR/logs (here: {folder})"
            )
        comparison = client.compare(ids[0], ids[1])
        _show(client, ids, comparison)
        keep = "" if kept else "expctl demo --keep night && "
        say(f"the same in a browser: {keep}expctl up --data {folder if kept else 'night'}, then /compare?base={ids[0]}&ids={ids[1]} there")


def _simulated_host(settings: Settings) -> dict[str, Any]:
    from expctl.serve import free_port  # noqa: PLC0415 - heavy
    from workers.sim.launchers import write_launchers  # noqa: PLC0415 - as above

    environ = {"EXPCTL_SIM_LOAD_SECONDS": LOAD_SECONDS, "EXPCTL_SIM_SEED": SEED, "EXPCTL_SIM_STATE_DIR": str(settings.data_dir / "sim")}
    made = write_launchers(settings.data_dir / "sim", environ)
    return {
        "simulated": True,
        "experiment_port": free_port(),
        "executables": {"vllm": str(made.engine)},
        "nvidia_smi": str(made.nvidia_smi),
    }


def _submit(client: Client, name: str) -> int:
    from expctl import specfiles  # noqa: PLC0415 - heavy

    file = examples() / name
    [spec] = specfiles.read(str(file), [f"host={HOST}"])
    made = client.submit(spec.model_dump(mode="json"))
    say(f"submitted {file.name} as {made['id']}: {made['name']}")
    return int(made["id"])


def _show(client: Client, ids: list[int], comparison: dict[str, Any]) -> None:
    if options.json:
        emit({"baseline": ids[0], "candidate": ids[1], "comparison": comparison})
        return
    from expctl.views.comparison import render  # noqa: PLC0415 - drawing is not free

    names = [client.experiment(one)["name"] for one in ids]
    draw(render(comparison, *names))
    print("Simulated host: these figures show how expctl works, not what any real hardware does.")
