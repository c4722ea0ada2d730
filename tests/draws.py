"""What hypothesis draws: the same examples always; with `--hypothesis-profile=fresh` new ones, and in
`make test-deep` ten times as many."""

from hypothesis import HealthCheck, settings

_USUAL = 100


def register() -> None:
    """Name all three; `--hypothesis-profile=...` chooses another. No deadlines: a machine may be busy."""
    common = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("same", common, derandomize=True, max_examples=_USUAL)
    settings.register_profile("fresh", common, print_blob=True, max_examples=_USUAL)
    settings.register_profile("deep", common, print_blob=True, max_examples=10 * _USUAL)
    settings.load_profile("same")


def examples(number: int) -> settings:
    """So many examples, or ten times as many."""
    assert settings.default is not None
    return settings(max_examples=number * settings.default.max_examples // _USUAL)
