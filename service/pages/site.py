"""All pages together, as the app's factory adds them."""

from __future__ import annotations

from fastapi import FastAPI

from service.pages import (
    actions,
    assets,
    comparing,
    deliveries,
    doors,
    experiment,
    hosts,
    night,
    queue,
    rendering,
    signing,
    timeline,
    tonight,
)

PARTS = (assets, signing, tonight, queue, experiment, comparing, timeline, hosts, deliveries, night, actions)


def install(app: FastAPI) -> None:
    """Add the pages to an app that answers with problems already.

    Templates and files are read now, so that the first to look waits no longer than others.
    """
    doors.nowhere(app)
    for part in PARTS:
        app.include_router(part.router)
    assets.assets()
    made = rendering.environment()
    for name in made.list_templates():
        made.get_template(name)
