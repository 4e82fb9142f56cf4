"""Headers that bind a page in the browser."""

from __future__ import annotations

_DIRECTIVES = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}


def page_headers(**directives: str) -> dict[str, str]:
    """Headers of a page whose parts come from its own origin; `style_src="..."` replaces or adds a directive."""
    policy = _DIRECTIVES | {name.replace("_", "-"): sources for name, sources in directives.items()}
    return {
        "content-security-policy": "; ".join(f"{name} {sources}" for name, sources in policy.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
