"""Security headers of pages."""

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
    """Returns headers for a page that only loads from its own origin; `style_src="..."` sets a directive."""
    policy = _DIRECTIVES | {name.replace("_", "-"): sources for name, sources in directives.items()}
    return {
        "content-security-policy": "; ".join(f"{name} {sources}" for name, sources in policy.items()),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
