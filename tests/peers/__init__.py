"""Comparisons with other people's software: `make peers` installs it; without it they are skipped."""
