"""Colors and font of all pictures: of the report, in light or dark mode, and of studies.

Each color has one meaning: blue for collaboration and its results, orange for departures and the worst
clients, green for arrivals, gray for waiting and missing values. The hues are those of Okabe and Ito, which
readers with any color vision can distinguish. The states of a device also differ in lightness.
"""

_COLOURS = {  # (light, dark)
    "page": ("#ffffff", "#16191d"),
    "panel": ("#f6f5f2", "#1f242a"),
    "warning": ("#fcf1ea", "#36251a"),
    "ink": ("#22262b", "#e4e7ea"),
    "faint": ("#62686f", "#a2a9b1"),
    "edge": ("#b4b9bf", "#555c64"),
    "grid": ("#e9e7e2", "#2b3138"),
    "blue": ("#0072b2", "#56b4e9"),
    "orange": ("#d55e00", "#f0913f"),
    "green": ("#009e73", "#2fc69b"),
    "purple": ("#a84a86", "#e08fc4"),
    "yellow": ("#a97b00", "#e3bd3c"),
    "sky": ("#56b4e9", "#a8dafc"),
    "training": ("#003f66", "#a8dafc"),
    "waiting": ("#93908b", "#716e6a"),
    "down": ("#ffffff", "#16191d"),
    "no-weight": ("#ffffff", "#16191d"),
    "half-weight": ("#78a3c4", "#35688c"),
    "full-weight": ("#003f66", "#a8dafc"),
    "unknown": ("#93908b", "#716e6a"),
    "band": ("rgba(0,114,178,0.15)", "rgba(86,180,233,0.2)"),
}
LIGHT = {name: light for name, (light, _) in _COLOURS.items()}
DARK = {name: dark for name, (_, dark) in _COLOURS.items()}
HUES = ("blue", "green", "orange", "purple", "yellow", "faint", "sky", "ink")
"""Hues, in order, of clusters, coalitions and the lines of studies."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
