"""report.html: a page about one run."""
