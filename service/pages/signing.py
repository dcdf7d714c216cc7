"""/signin and /signout: a browser keeps a token in a cookie that no script and no other site can use."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from service.api.signin import COOKIE
from service.domain.errors import NotSignedIn
from service.domain.tokentext import well_formed
from service.pages.doors import Form, OurOwn, PageRoute, inside, sign_in_page

SEE_OTHER = 303

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/signin")
def form(request: Request) -> Response:
    """The form; whoever needs no token goes on."""
    if request.app.state.loopback_only:
        return RedirectResponse("/", SEE_OTHER)
    return sign_in_page(request, None, 200)


@router.post("/signin", dependencies=[OurOwn])
def sign_in(request: Request, fields: Form) -> Response:
    """Keep a token for as long as the browser is open. Whether it is good, the next page finds out, as with any request."""
    token = fields.get("token", "").strip()
    if not well_formed(token):
        raise NotSignedIn("this is no whole token", "a letter of it is wrong, or it was cut off", "copy it again")
    answer = RedirectResponse(inside(fields.get("onward")), SEE_OTHER)
    secure = request.url.scheme == "https" or request.app.state.settings.base_url.startswith("https:")
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure, path="/")
    return answer


@router.post("/signout", dependencies=[OurOwn])
def sign_out() -> Response:
    """Forget it."""
    answer = RedirectResponse("/signin", SEE_OTHER)
    answer.delete_cookie(COOKIE, path="/")
    return answer
