from __future__ import annotations

import pytest

from service.domain.reasons import Reason
from service.domain.status import Outcome, StepName
from service.store import hosts
from service.store.database import Database
from tests.integration.api.service import Api, Hands
from tests.integration.pages.reading import Browser

HOSTILE = "<script>alert(1)</script> & co"


@pytest.fixture
def browser(database: Database) -> Browser:
    """Looks at a service without tokens that knows one host."""
    with database.write() as session:
        hosts.register(session, "local", "local", {"simulated": True})
    return Browser(Api(database))


@pytest.fixture
def night(browser: Browser) -> Browser:
    """A night: 1 and 2 measured, 3 failed, 4 loads, 5 waits, 6 is held."""
    api = browser.api
    hands = Hands(api.database)
    for name, tps in (("base", 60.0), ("faster", 90.0)):
        one = api.submit(name=name)["id"]
        hands.take()
        hands.measure(one, tps)
        hands.finish(one)
        if name == "base":
            assert api.ask("PUT", f"/v1/experiments/{one}/baseline").status_code == 200
    broken = api.submit(name=HOSTILE)["id"]
    hands.take()
    hands.log(broken, StepName.LOAD, "one line", "two lines\nCUDA out of memory <b>")
    hands.finish(broken, Outcome.FAILED, Reason.CUDA_OUT_OF_MEMORY, "no room")
    loading = api.submit(name="loads")["id"]
    hands.take()
    hands.log(loading, StepName.LOAD, "reading weights")
    for name in ("waits", "kept"):
        last = api.submit(name=name)["id"]
    assert api.post(f"/v1/experiments/{last}/hold", {"because": "after the driver update"}).status_code == 200
    return browser
