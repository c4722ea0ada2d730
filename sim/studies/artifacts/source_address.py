"""Address of coterie's source, which an archive names for readers whose package index lacks coterie."""

from importlib.metadata import PackageNotFoundError, metadata
from urllib.parse import urlsplit

from sim.errors import UserError, one_line

_SCHEMES = ("http", "https")
_LABELS = ("source", "source code", "repository", "homepage")
"""Labels of project URLs in lower case, the best first."""


def project_source() -> str | None:
    """Return the address of coterie's source in the metadata of its package; None if it states none."""
    try:
        lines = metadata("coterie").get_all("Project-URL") or []
    except PackageNotFoundError:  # coterie runs from its sources
        return None
    urls = {label.strip().lower(): url.strip() for label, _, url in (line.partition(",") for line in lines)}
    usable = {label: url for label, url in urls.items() if not url_problem(url)}
    return next((usable[label] for label in (*_LABELS, *usable) if label in usable), None)


def require_source_url(url: str) -> str:
    """Return the address if an archive can name it. Raises UserError."""
    if problem := url_problem(url):
        raise UserError(f"--source {one_line(url, 100)}: {problem}")
    return url


def url_problem(url: str) -> str:
    """Return why an archive cannot name an address; empty if it can."""
    allowed = "must be an http or https address, such as https://example.org/coterie"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # the port raises ValueError
    except ValueError:
        return allowed
    is_plain = url.isprintable() and not set(url) & set(' <>"`\\')
    if parts.scheme not in _SCHEMES or not host or not is_plain:
        return allowed
    return "must not contain a user or a password" if "@" in parts.netloc else ""
