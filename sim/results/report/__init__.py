"""report.html: the page about one run."""
